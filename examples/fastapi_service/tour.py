"""A walk through the service beside it, over HTTP, as its clients would do it.

What it needs: `app.py` running, and `httpx`.

How to run: `python examples/fastapi_service/tour.py [http://127.0.0.1:8000]`.

What it prints: one line per step. Never a token: whoever has it may answer.
"""

import json
import sys
import uuid
from collections.abc import Iterator

import httpx


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, object]]]:
    """The events of a stream: name and data."""
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def tour(url: str) -> None:
    def client(session: str) -> httpx.Client:
        return httpx.Client(base_url=url, headers={"x-session": session}, timeout=30)

    order = uuid.uuid4().hex[:6]
    with (
        client("north-clerk") as north,
        client("south-clerk") as south,
        client("acme-admin") as admin,
        client("globex-clerk") as globex,
    ):
        for number, shop in enumerate((north, north, south), start=1):
            shop.post(f"/orders/{order}-{number}/refund", params={"amount": 30 * number}).raise_for_status()
        print("1. two refunds in the north shop, one in the south shop")

        counts = [len(one.get("/questions/pending").json()["items"]) for one in (north, south, globex)]
        print("2. open questions: north {}, south {}, globex {}".format(*counts))

        mine = north.get("/questions/pending").json()["items"]
        question = next(item for item in mine if item["payload"]["amount"] == 30)
        detail = north.get(f"/questions/pending/{question['interrupt_id']}").json()
        print(
            f"3. north is asked {detail['payload']['amount']}; fields of an answer:",
            *detail["response_schema"]["properties"],
        )

        bad = {"token": question["pause_token"], "response": {"approved": "perhaps"}}
        refused = north.post("/questions/resume/refund_approval", json=bad)
        print("4. a bad answer:", refused.status_code, refused.json()["code"])

        good = {"token": question["pause_token"], "response": {"approved": True}}
        with north.stream(
            "POST", "/questions/resume/refund_approval", json=good, headers={"accept": "text/event-stream"}
        ) as response:
            print("5. a good answer, streamed:", *(name for name, _ in events(response)))

        again = north.post("/questions/resume/refund_approval", json=good)
        print("6. the same token again:", again.status_code, again.json()["code"])

        below = admin.get("/questions/pending", params={"include_sub_scopes": True}).json()["items"]
        print("7. open questions below the admin:", len(below))
        for item in below:
            body = {"token": item["pause_token"], "response": {"approved": False, "note": "closed for the year"}}
            admin.post("/questions/resume/refund_approval", json=body).raise_for_status()
        print("8. the admin declined them, across scopes")

        told: list[str] = []
        with south.stream("GET", "/questions/events", params={"replay": True}) as response:
            for name, _ in events(response):
                told.append(name)
                if name == "interrupt_cross_scope":
                    break
        print("9. what is recorded in the south shop:", *sorted(told))


if __name__ == "__main__":
    tour(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
