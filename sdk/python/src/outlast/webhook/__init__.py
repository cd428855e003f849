"""Webhooks: signed deliveries and callbacks of the server."""

from .hook import Webhook, WebhookAnswer, parse_callback, webhook
from .signature import signature, verify

__all__ = ["Webhook", "WebhookAnswer", "parse_callback", "signature", "verify", "webhook"]
