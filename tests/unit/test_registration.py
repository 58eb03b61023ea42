"""What a point is, and the way between its models and their canonical JSON."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    computed_field,
    field_serializer,
    field_validator,
)

from symfonic_interrupts import (
    FeatureDisabled,
    FrameworkConfig,
    InterruptRegistration,
    PayloadInvalid,
    RegistrationError,
    ResponseInvalid,
    UnknownInterrupt,
)
from symfonic_interrupts.event_shapes import EVENT_SHAPES
from symfonic_interrupts.registry import Registry

ON = FrameworkConfig(experimental_interrupt=True)
SECRET = "top-secret-input"


class Refund(BaseModel):
    order: str
    amount: int = Field(ge=0)


class Decision(BaseModel):
    approved: bool
    note: str = ""


class Anything(BaseModel):
    """A response that may be any JSON object."""

    model_config = ConfigDict(extra="allow")


class Value(BaseModel):
    value: Any


class Password(BaseModel):
    password: SecretStr


def point(name: str = "approval", **options: Any) -> InterruptRegistration:
    options = {"payload_schema": Refund, "response_schema": Decision, **options}
    return InterruptRegistration(name=name, **options)


def text_of(errors: ResponseInvalid | PayloadInvalid) -> str:
    return str(errors) + repr(errors.errors) + repr(errors.__cause__)


# -- what is registered


def test_a_point_has_these_defaults() -> None:
    found = point()

    assert {field.name: getattr(found, field.name) for field in dataclasses.fields(found)} == {
        "name": "approval",
        "payload_schema": Refund,
        "response_schema": Decision,
        "validate_response": None,
        "cross_scope_allowed": False,
        "built_in": False,
        "metadata": {},
        "ttl": None,
        "on_expire": None,
        "nodes": (),
        "nodes_of": None,
        "present": None,
        "shapes": EVENT_SHAPES,
    }


@pytest.mark.parametrize("name", ["a", "_", "approval_required", "billing.refund-2", "A" * 64, "a9"])
def test_a_name_that_looks_like_an_identifier_is_taken(name: str) -> None:
    assert point(name).name == name


@pytest.mark.parametrize(
    "name", ["", "A" * 65, "9a", "-a", ".a", "a b", "a/b", "a:b", "a\n", "\na", "é", "a|b", "a\x00", None, 5, b"a"]
)
def test_a_name_that_does_not_is_refused(name: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^name must look like an identifier"):
        point(name)


@pytest.mark.parametrize("field", ["payload_schema", "response_schema"])
@pytest.mark.parametrize(
    "schema", [dict, str, None, BaseModel, Decision(approved=True), "Decision", Decision | None, dataclasses.Field]
)
def test_a_schema_that_is_no_pydantic_model_is_refused_by_name(field: str, schema: Any) -> None:
    with pytest.raises(RegistrationError, match=rf"^approval: {field} must be a subclass of pydantic.BaseModel"):
        point(**{field: schema})


def test_a_validator_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"^approval: validate_response must be callable"):
        point(validate_response="check")


async def _never(response: Decision, payload: Refund) -> None:
    raise ValueError("no")


class _Never:
    async def __call__(self, response: Decision, payload: Refund) -> None:
        raise ValueError("no")


@pytest.mark.parametrize("check", [_never, functools.partial(_never), _Never(), _Never().__call__])
def test_an_async_validator_is_refused_because_its_coroutine_would_refuse_nothing(check: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^approval: validate_response must"):
        point(validate_response=check)


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), 3600, "1h", 5.0])
def test_a_ttl_that_is_no_time_above_zero_is_refused(ttl: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^approval: ttl must be a timedelta above zero"):
        point(ttl=ttl)


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": {1, 2}},
        {1: "a"},
        {"a": float("nan")},
        {"a": date(2026, 1, 2)},
        {"a": "\ud800"},
        {"a": b"b"},
        None,
        5,
        "team",
        ["team"],
        [],
        "",
        [("team", "billing")],
    ],
)
def test_metadata_that_is_no_mapping_of_json_data_is_refused(metadata: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^approval: metadata must be a mapping of JSON data"):
        point(metadata=metadata)


def test_metadata_is_kept_as_it_was_given_and_cannot_be_changed() -> None:
    given = {"team": "billing", "tags": ["a"], "é": None}
    found = point(metadata=given)
    given["team"] = "other"

    assert found.metadata == {"team": "billing", "tags": ["a"], "é": None}
    with pytest.raises(TypeError):
        found.metadata["team"] = "other"  # type: ignore[index]


@pytest.mark.parametrize(
    "nodes", [(), ("node",), ["a", "sub:node"], ("graph/node",), ("graph/sub:sub:node", "my node")]
)
def test_nodes_are_kept_as_a_tuple(nodes: Any) -> None:
    assert point(nodes=nodes).nodes == tuple(nodes)


@pytest.mark.parametrize(
    "nodes",
    [
        "node",
        None,
        5,
        {"node"},
        ("",),
        (5,),
        (None,),
        ("a/b/c",),
        ("/a",),
        ("a/",),
        (":a",),
        ("a:",),
        ("a::b",),
        ("a|b",),
        ("graph/:a",),
        ("a:b/c",),
    ],
)
def test_nodes_in_another_form_are_refused(nodes: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^approval: nodes must be a tuple"):
        point(nodes=nodes)


def test_an_answer_for_expiry_of_another_model_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"^approval: on_expire does not fit response_schema"):
        point(on_expire=Refund(order="A1", amount=1))


def test_an_answer_for_expiry_that_would_come_back_changed_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"^approval: on_expire does not fit response_schema") as refused:
        point(response_schema=Password, on_expire=Password(password=SecretStr(SECRET)))

    assert SECRET not in str(refused.value)


def test_an_answer_for_expiry_of_the_right_model_is_kept() -> None:
    assert point(on_expire=Decision(approved=False, note="late")).on_expire == Decision(approved=False, note="late")


def test_a_point_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        point().cross_scope_allowed = True  # type: ignore[misc]


# -- the registry


def test_without_the_flag_a_custom_point_is_refused_and_the_flag_is_named() -> None:
    registry = Registry(FrameworkConfig())

    with pytest.raises(FeatureDisabled, match=r"FrameworkConfig\(experimental_interrupt=True\)"):
        registry.add(point())
    assert list(registry) == []


def test_a_built_in_point_needs_no_flag() -> None:
    registry = Registry(FrameworkConfig())

    assert registry.add(point(built_in=True)) is registry["approval"]


def test_the_flag_is_checked_again_when_asked() -> None:
    with pytest.raises(FeatureDisabled, match=r"^approval: .*experimental_interrupt"):
        point().check(FrameworkConfig())
    point().check(ON)
    point(built_in=True).check(FrameworkConfig())


def test_a_ttl_beyond_the_longest_is_refused_and_the_setting_is_named() -> None:
    config = FrameworkConfig(experimental_interrupt=True, default_ttl=timedelta(hours=1), max_ttl=timedelta(hours=2))

    Registry(config).add(point(ttl=timedelta(hours=2)))
    with pytest.raises(RegistrationError, match=r"^approval: ttl is longer than FrameworkConfig.max_ttl \(2:00:00\)"):
        Registry(config).add(point(ttl=timedelta(hours=2, microseconds=1)))


def test_a_name_is_registered_once() -> None:
    registry = Registry(ON)
    first = registry.add(point())

    with pytest.raises(
        RegistrationError, match=r"^approval is registered already on this Interrupts.*choose another name"
    ):
        registry.add(point(ttl=timedelta(hours=1)))
    assert registry["approval"] is first


def test_where_replacing_is_allowed_the_later_point_counts() -> None:
    registry = Registry(ON, replace=True)
    registry.add(point())
    later = registry.add(point(ttl=timedelta(hours=1)))

    assert registry.named("approval") is later
    assert len(registry) == 1


@pytest.mark.parametrize("replace", [False, True])
def test_a_built_in_point_is_never_replaced(replace: bool) -> None:
    registry = Registry(ON, replace=replace)
    built_in = registry.add(point("ask_user", built_in=True))

    with pytest.raises(RegistrationError, match=r"^ask_user is built in; choose another name"):
        registry.add(point("ask_user"))
    assert registry["ask_user"] is built_in


@pytest.mark.parametrize("replace", [False, True])
def test_a_node_is_covered_by_one_point(replace: bool) -> None:
    registry = Registry(ON, replace=replace)
    registry.add(point("first", nodes=("a", "b")))

    with pytest.raises(RegistrationError, match=r"^second: node 'b' is covered by first already"):
        registry.add(point("second", nodes=("b", "c")))
    assert list(registry) == ["first"]


def test_a_point_that_replaces_itself_may_keep_its_nodes() -> None:
    registry = Registry(ON, replace=True)
    registry.add(point(nodes=("a",)))

    assert registry.add(point(nodes=("a", "b"))).nodes == ("a", "b")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownInterrupt, match=r"^no point named 'refund' is registered here"):
        Registry(ON).named("refund")


# -- payloads


def test_a_payload_has_canonical_text_and_comes_back_from_it() -> None:
    text = point().payload_text(Refund(order="zoë", amount=90))

    assert text == '{"amount":90,"order":"zoë"}'
    assert point().payload_from_text(text) == Refund(order="zoë", amount=90)


class OtherRefund(BaseModel):
    order: str
    amount: int


@pytest.mark.parametrize("payload", [OtherRefund(order="A1", amount=1), {"order": SECRET, "amount": 1}, None, SECRET])
def test_a_payload_of_another_type_is_refused_and_both_types_are_named(payload: Any) -> None:
    with pytest.raises(PayloadInvalid, match=r"^approval: payload must be a Refund, not ") as refused:
        point().payload_text(payload)

    assert type(payload).__name__ in str(refused.value)
    assert SECRET not in text_of(refused.value)


class Point(BaseModel):
    x: float


@pytest.mark.parametrize("x", [float("nan"), float("inf"), float("-inf")])
def test_a_payload_without_a_json_form_is_refused(x: float) -> None:
    with pytest.raises(PayloadInvalid, match=r"^approval: payload"):
        point(payload_schema=Point).payload_text(Point(x=x))


class Stamped(BaseModel):
    day: date

    @field_serializer("day")
    def _in_words(self, day: date) -> str:
        return SECRET


def test_a_payload_that_does_not_come_back_from_its_json_is_refused() -> None:
    with pytest.raises(
        PayloadInvalid, match=r"^approval: payload does not come back from its own JSON: day"
    ) as refused:
        point(payload_schema=Stamped).payload_text(Stamped(day=date(2026, 1, 2)))

    assert [error["loc"] for error in refused.value.errors] == [("day",)]
    assert SECRET not in text_of(refused.value)


def test_a_payload_that_was_never_validated_is_refused_and_not_shown() -> None:
    with pytest.raises(PayloadInvalid, match=r"^approval: payload") as refused:
        point().payload_text(Refund.model_construct(order="A1", amount=SECRET))

    assert SECRET not in text_of(refused.value)


def test_two_payloads_that_differ_only_in_a_secret_do_not_have_one_text() -> None:
    def text(secret: str) -> str | None:
        try:
            return point(payload_schema=Password).payload_text(Password(password=SecretStr(secret)))
        except PayloadInvalid:
            return None

    # one request_hash for both would let the approval of the one pass for the other; refusing them is right as well
    assert text("one") is None or text("one") != text("two")


def test_a_payload_over_the_limit_is_refused_and_the_setting_is_named() -> None:
    # 24 characters, of which one has two bytes
    assert point().payload_text(Refund(order="é", amount=1), limit=25) == '{"amount":1,"order":"é"}'
    with pytest.raises(
        PayloadInvalid,
        match=r"^approval: payload has 26 bytes, more than FrameworkConfig.max_payload_bytes \(25\)$",
    ):
        point().payload_text(Refund(order="éa", amount=1), limit=25)


def test_the_value_of_a_native_interrupt_becomes_the_payload() -> None:
    given = Refund(order="A1", amount=1)

    assert point().native_payload({"order": "A1", "amount": 1}, node="gate") == given
    assert point().native_payload(given, node="gate") is given


def test_a_native_value_that_does_not_fit_is_refused_with_node_and_field() -> None:
    with pytest.raises(
        PayloadInvalid, match=r"^approval: interrupt\(\) in node 'gate' does not fit Refund: amount: "
    ) as refused:
        point().native_payload({"order": "A1", "amount": SECRET}, node="gate")

    assert [error["loc"] for error in refused.value.errors] == [("amount",)]
    assert SECRET not in text_of(refused.value)


class Invoice(BaseModel):
    model_config = ConfigDict(extra="ignore")
    net: int
    tax: int

    @computed_field
    @property
    def total(self) -> int:
        return self.net + self.tax


class StrictInvoice(Invoice):
    model_config = ConfigDict(extra="forbid")


class OpenInvoice(Invoice):
    model_config = ConfigDict(extra="allow")


class Renamed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    net: int

    @computed_field(alias="grossAmount")
    @property
    def gross(self) -> int:
        return self.net * 2


class Bill(BaseModel):
    model_config = ConfigDict(extra="forbid")
    invoices: list[StrictInvoice | Renamed]
    by_name: dict[str, StrictInvoice] = {}
    first: StrictInvoice | None = None


@pytest.mark.parametrize("schema", [Invoice, StrictInvoice, OpenInvoice])
def test_a_computed_field_is_shown_and_need_not_come_back(schema: type[Any]) -> None:
    invoices = point(payload_schema=schema)

    text = invoices.payload_text(schema(net=100, tax=19))

    assert text == '{"net":100,"tax":19,"total":119}'
    assert invoices.payload_from_text(text) == schema(net=100, tax=19)
    # as it was stored before computed fields were shown, and as `interrupt(payload.model_dump())` has it
    assert invoices.payload_from_text('{"net":100,"tax":19}') == schema(net=100, tax=19)
    assert invoices.native_payload({"net": 100, "tax": 19, "total": 119}, node="gate") == schema(net=100, tax=19)


def test_other_extra_fields_are_taken_or_refused_as_the_model_says() -> None:
    text = '{"more":1,"net":100,"tax":19,"total":119}'

    assert point(payload_schema=OpenInvoice).payload_text(OpenInvoice(net=100, tax=19, more=1)) == text  # type: ignore[call-arg]
    assert point(payload_schema=OpenInvoice).payload_from_text(text).__pydantic_extra__ == {"more": 1}
    with pytest.raises(ValidationError, match="more"):
        point(payload_schema=StrictInvoice).payload_from_text(text)
    given = {"net": 100, "tax": 19, "total": 119, "more": 1}
    with pytest.raises(PayloadInvalid, match="more") as refused:
        point(payload_schema=StrictInvoice).native_payload(given, node="gate")
    assert [error["loc"] for error in refused.value.errors] == [("more",)]
    assert given == {"net": 100, "tax": 19, "total": 119, "more": 1}


def test_computed_fields_of_models_in_a_payload_are_shown_under_their_aliases() -> None:
    bills = point(payload_schema=Bill)
    one = StrictInvoice(net=1, tax=2)
    bill = Bill(invoices=[one, Renamed(net=2)], by_name={"a": one}, first=one)

    text = bills.payload_text(bill)

    shown = '{"net":1,"tax":2,"total":3}'
    assert text == f'{{"by_name":{{"a":{shown}}},"first":{shown},"invoices":[{shown},{{"grossAmount":4,"net":2}}]}}'
    assert bills.payload_from_text(text) == bill


class Counted(BaseModel):
    net: int
    _reads: list[int] = PrivateAttr(default_factory=lambda: [next(COUNTER)])

    @computed_field
    @property
    def reads(self) -> int:
        return self._reads[0]


class WithNames(BaseModel):
    net: int

    @computed_field
    @property
    def names(self) -> set[str]:
        return {"a", "b"}


class Huge(BaseModel):
    net: int

    @computed_field
    @property
    def power(self) -> int:
        return 2**70


COUNTER = itertools.count()


@pytest.mark.parametrize(
    ("schema", "reason"), [(Counted, "a computed field says"), (WithNames, "no order"), (Huge, "64 bit")]
)
def test_a_computed_field_that_two_processes_would_show_differently_is_refused(schema: type[Any], reason: str) -> None:
    with pytest.raises(PayloadInvalid, match=reason):
        point(payload_schema=schema).payload_text(schema(net=1))


def test_a_computed_field_of_an_answer_is_nobodys_to_give_and_is_not_read() -> None:
    answers = point(response_schema=Invoice)

    assert answers.response_text(Invoice(net=1, tax=2)) == '{"net":1,"tax":2}'


# -- responses


def test_a_response_model_has_canonical_text() -> None:
    assert point().response_text(Decision(approved=True, note="zoë")) == '{"approved":true,"note":"zoë"}'


def test_plain_data_is_kept_as_it_was_sent() -> None:
    assert point().response_text({"note": "b", "approved": "yes"}) == '{"approved":"yes","note":"b"}'
    assert point().response_from_text('{"approved":"yes","note":"b"}') == Decision(approved=True, note="b")


@pytest.mark.parametrize(
    ("response", "places"),
    [
        ({}, [("approved",)]),
        ({"approved": SECRET}, [("approved",)]),
        ({"approved": True, "note": 5}, [("note",)]),
        ({"approved": SECRET, "note": [SECRET]}, [("approved",), ("note",)]),
        (SECRET, [()]),
        (None, [()]),
        ([SECRET], [()]),
        (True, [()]),
    ],
)
def test_a_response_that_does_not_fit_is_refused_with_pydantics_errors(response: Any, places: list[Any]) -> None:
    with pytest.raises(ResponseInvalid, match=r"^approval: the answer does not fit Decision: ") as refused:
        point().response_text(response)

    assert [error["loc"] for error in refused.value.errors] == places
    assert all(set(error) == {"type", "loc", "msg"} for error in refused.value.errors)
    assert SECRET not in text_of(refused.value)


@pytest.mark.parametrize(
    "response", [{"approved": {SECRET}}, {1: SECRET}, {"note": float("nan")}, {"note": SECRET + "\ud800"}, object()]
)
def test_a_response_that_is_not_json_is_refused(response: Any) -> None:
    with pytest.raises(ResponseInvalid, match=r"^approval: response: ") as refused:
        point().response_text(response)

    assert SECRET not in text_of(refused.value)


class Yes(BaseModel):
    kind: Literal["yes"]
    amount: int


class No(BaseModel):
    kind: Literal["no"]


class Tagged(BaseModel):
    answer: Annotated[Yes | No, Field(discriminator="kind")]


class Constrained(BaseModel):
    pattern: Annotated[str, Field(pattern="^a+$")] = "a"
    choice: Literal["a", "b"] = "a"
    id: UUID | None = None
    amount: Decimal = Decimal(0)
    untagged: Yes | No | None = None
    by_name: dict[str, int] = {}


@pytest.mark.parametrize(
    ("schema", "response"),
    [
        (Tagged, {"answer": {"kind": SECRET}}),
        (Tagged, {"answer": {"kind": "yes", "amount": SECRET}}),
        (Tagged, {"answer": SECRET}),
        (Constrained, {"pattern": SECRET}),
        (Constrained, {"choice": SECRET}),
        (Constrained, {"id": SECRET}),
        (Constrained, {"amount": SECRET}),
        (Constrained, {"untagged": {"kind": SECRET}}),
        (Constrained, {"by_name": {"a": SECRET}}),
    ],
)
def test_no_error_of_a_response_contains_what_was_sent(schema: type[BaseModel], response: Any) -> None:
    with pytest.raises(ResponseInvalid) as refused:
        point(response_schema=schema).response_text(response)

    assert refused.value.errors
    assert SECRET not in text_of(refused.value)


def test_a_response_over_the_limit_is_refused_and_the_setting_is_named() -> None:
    assert point().response_text({"approved": True, "note": "é"}, limit=29) == '{"approved":true,"note":"é"}'
    with pytest.raises(
        ResponseInvalid,
        match=r"^approval: response has 30 bytes, more than FrameworkConfig.max_response_bytes \(29\)$",
    ):
        point().response_text({"approved": True, "note": "éa"}, limit=29)


def test_a_model_that_would_lose_its_secret_is_refused_while_its_plain_data_is_taken() -> None:
    password = point(response_schema=Password)

    with pytest.raises(ResponseInvalid, match=r"^approval: .*would come back changed from JSON") as refused:
        password.response_text(Password(password=SecretStr(SECRET)))
    text = password.response_text({"password": SECRET})

    assert SECRET not in text_of(refused.value)
    assert text == '{"password":"top-secret-input"}'
    assert password.response_from_text(text) == Password(password=SecretStr(SECRET))


class MoreThanDecision(Decision):
    extra: str = ""


def test_a_response_of_a_subclass_is_refused_rather_than_cut() -> None:
    with pytest.raises(ResponseInvalid, match=r"^approval: "):
        point().response_text(MoreThanDecision(approved=True, extra="lost"))


class WithTotal(BaseModel):
    amounts: list[int]

    @functools.cached_property
    def total(self) -> int:
        return sum(self.amounts)


def test_a_model_is_the_same_after_one_of_its_cached_properties_was_read() -> None:
    summed = point(payload_schema=WithTotal, response_schema=WithTotal)
    model = WithTotal(amounts=[1, 2])
    assert model.total == 3

    assert summed.payload_text(model) == '{"amounts":[1,2]}'
    assert summed.response_text(model) == '{"amounts":[1,2]}'


class WithPrivate(BaseModel):
    amount: int
    _seen: list[int] = PrivateAttr(default_factory=list)


def test_private_attributes_do_not_count_because_they_do_not_travel() -> None:
    private = point(payload_schema=WithPrivate, response_schema=WithPrivate)
    model = WithPrivate(amount=1)
    model._seen.append(5)

    assert private.payload_text(model) == '{"amount":1}'
    assert private.response_text(model) == '{"amount":1}'


class WithHidden(BaseModel):
    order: str
    amount: int = Field(default=0, exclude=True)


def test_a_payload_with_a_field_that_is_not_shown_is_refused() -> None:
    with pytest.raises(PayloadInvalid, match=r"^approval: payload"):
        point(payload_schema=WithHidden).payload_text(WithHidden(order="A1", amount=1_000_000))


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    is_approved: bool = Field(alias="approved")


def test_a_model_with_aliases_survives() -> None:
    aliased = point(response_schema=Aliased)

    text = aliased.response_text(Aliased(approved=True))

    assert text == '{"approved":true}'
    assert aliased.response_from_text(text) == Aliased(approved=True)


SURVIVORS: list[Any] = [
    {},
    {"note": None},
    {"approved": False},
    {"amount": 0},
    {"note": ""},
    {"tags": []},
    {"tags": {}},
    {"0123456789abcdef0123456789abcdef": {"approved": True}},
    {"0123456789abcdef0123456789abcdef": None, "fedcba9876543210fedcba9876543210": None},
    {"note": "zoë, 東京, 🦊"},
    {"名前": "é"},
    {"note": "a" * 1_000_000},
    {"answers": [{"response": "{}", "receipt": {}}]},
    {"deep": [[[[{"a": [None, False, 0, "", [], {}]}]]]]},
    {"amount": 1.5, "large": 10**18, "small": -0.25},
    {"text": "\x00\n\u2028\x7f"},
    {"true": "true", "null": "null", "": ""},
]


@pytest.mark.parametrize("sent", SURVIVORS, ids=range(len(SURVIVORS)))
def test_an_object_survives_storage_unchanged(sent: dict[str, Any]) -> None:
    anything = point(response_schema=Anything)

    text = anything.response_text(sent)
    came = anything.response_from_text(text)

    assert came.model_dump() == sent
    assert anything.response_text(came) == text


@pytest.mark.parametrize("sent", [None, False, True, 0, 0.0, -1, "", [], {}, "null", "0", [None], [[]], {"": None}])
def test_a_value_survives_storage_with_its_type(sent: Any) -> None:
    came = point(response_schema=Value).response_from_text(point(response_schema=Value).response_text({"value": sent}))

    assert came == Value(value=sent)
    assert type(came.value) is type(sent)


# -- the further check


def test_the_validator_gets_both_models() -> None:
    seen: list[Any] = []
    checked = point(validate_response=lambda response, payload: seen.append((response, payload)))

    checked.response_text({"approved": True}, payload_text='{"amount":90,"order":"A1"}')

    assert seen == [(Decision(approved=True), Refund(order="A1", amount=90))]


def test_without_a_payload_the_validator_is_not_called() -> None:
    def refuse(response: Decision, payload: Refund) -> None:
        raise ValueError("no")

    assert point(validate_response=refuse).response_text({"approved": True}) == '{"approved":true}'


@pytest.mark.parametrize("error", [ValueError, AssertionError])
def test_a_validator_that_refuses_is_heard(error: type[Exception]) -> None:
    def refuse(response: Decision, payload: Refund) -> None:
        raise error("over the limit")

    with pytest.raises(
        ResponseInvalid, match=r"^approval: validate_response refused the answer: over the limit$"
    ) as refused:
        point(validate_response=refuse).response_text({"approved": True}, payload_text='{"amount":90,"order":"A1"}')

    assert refused.value.errors == [{"type": "value_error", "loc": (), "msg": "over the limit"}]


def test_a_validator_that_refuses_without_a_word_is_heard() -> None:
    def refuse(response: Decision, payload: Refund) -> None:
        assert not response.approved

    with pytest.raises(ResponseInvalid, match=r"^approval: validate_response refused the answer: ") as refused:
        point(validate_response=refuse).response_text({"approved": True}, payload_text='{"amount":90,"order":"A1"}')

    assert len(refused.value.errors) == 1


def _with_pydantic(response: Decision, payload: Refund) -> None:
    Refund.model_validate({"order": "A1", "amount": response.note})


def test_a_validator_that_uses_pydantic_does_not_give_the_answer_away() -> None:
    with pytest.raises(ResponseInvalid, match=r"^approval: validate_response refused the answer: ") as refused:
        point(validate_response=_with_pydantic).response_text(
            {"approved": True, "note": SECRET}, payload_text='{"amount":90,"order":"A1"}'
        )

    assert SECRET not in text_of(refused.value)


def test_a_mistake_in_the_validator_is_no_refusal() -> None:
    def broken(response: Decision, payload: Refund) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        point(validate_response=broken).response_text({"approved": True}, payload_text='{"amount":90,"order":"A1"}')


def test_the_validator_is_not_asked_about_an_answer_that_does_not_fit() -> None:
    calls: list[Any] = []
    check: Callable[[Any, Any], None] = lambda response, payload: calls.append(response)  # noqa: E731

    with pytest.raises(ResponseInvalid):
        point(validate_response=check).response_text({}, payload_text='{"amount":90,"order":"A1"}')

    assert calls == []


class Strict(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n


def test_the_error_of_an_authors_field_validator_is_passed_on_without_its_context() -> None:
    with pytest.raises(ResponseInvalid, match=r"n: Value error, must be even$") as refused:
        point(response_schema=Strict).response_text({"n": 3})

    assert refused.value.errors == [{"type": "value_error", "loc": ("n",), "msg": "Value error, must be even"}]
