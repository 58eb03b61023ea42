"""What a reader of the README needs, by the modules that define it: the `__all__` of `symfonic_interrupts`."""

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.ask_user import AskUserAnswer, AskUserOption, AskUserQuestion, AskUserRequest, AskUserResponse
from symfonic_interrupts.asking.point import Approval, InterruptPoint
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.core.results import AnswerReceipt, PauseView
from symfonic_interrupts.delivering.failed_thread import FailedThread
from symfonic_interrupts.delivering.progress import Delivery
from symfonic_interrupts.errors import InterruptError
from symfonic_interrupts.events import InterruptEvent
from symfonic_interrupts.identity import Identity
from symfonic_interrupts.interrupts import Interrupts
from symfonic_interrupts.presenting import Presentation
from symfonic_interrupts.saver.saver import InterruptSaver
from symfonic_interrupts.scope import FrameworkTenantScope
from symfonic_interrupts.streaming import InterruptTransformer, interrupt_events
from symfonic_interrupts.tokens.keys import KeyRing
from symfonic_interrupts.tokens.pause_token import PauseToken
from symfonic_interrupts.upkeep.janitor import Janitor, SweepReport
from symfonic_interrupts.upkeep.worker import Worker

__all__ = [
    "AnswerReceipt",
    "Approval",
    "AskUserAnswer",
    "AskUserOption",
    "AskUserQuestion",
    "AskUserRequest",
    "AskUserResponse",
    "Delivery",
    "FailedThread",
    "FrameworkConfig",
    "FrameworkTenantScope",
    "Identity",
    "InterruptError",
    "InterruptEvent",
    "InterruptPoint",
    "InterruptSaver",
    "InterruptTransformer",
    "Interrupts",
    "Janitor",
    "KeyRing",
    "PauseToken",
    "PauseView",
    "Presentation",
    "ResumeAdapter",
    "SweepReport",
    "Worker",
    "interrupt_events",
]
