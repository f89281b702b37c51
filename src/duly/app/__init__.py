"""The application object, and its configuration."""

from duly.app.application import Duly, Loop, ensure_schedule
from duly.app.config import Config

__all__ = ["Config", "Duly", "Loop", "ensure_schedule"]
