"""Writes inbound.json: signed webhooks of every scheme, made with nothing but Python's own hmac.

It shares no code with the verifier, so that both would have to be wrong in the same way. Values that a provider has
published are asserted here and marked `published` there. Run it from any directory: `python3 inbound.py`.
"""

import base64
import hashlib
import hmac
import json
import pathlib
from urllib.parse import parse_qsl

NOW = 1_700_000_000
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
URL = "https://hooks.example.com/webhooks/source"
# Bytes that a parser would write differently: spaces, an escape, a number with zeros, a character beyond ASCII.
BODY = '{"type": "a.b",  "id":"1", "amount": 1.50, "name":"caf\u00e9 \\u00e9", "webhookTimestamp": 1700000000123}'

vectors = []


def mac(algorithm, key, *parts):
    return hmac.new(key, b"".join(parts), algorithm).digest()


def add(scheme, secret, headers, body, published=False, url=URL, now=NOW, **settings):
    vectors.append({
        "scheme": scheme, "published": published, "secret": secret, "url": url, "now": now,
        "headers": headers, "body": body if isinstance(body, str) else body.decode(), **settings,
    })


def stripe():
    secret = "whsec_test_of_stripe"
    signature = mac("sha256", secret.encode(), b"1700000000.", BODY.encode()).hex()
    add("stripe", secret, {**JSON, "stripe-signature": f"t={NOW},v1={signature},v0={'0' * 64}"}, BODY)


def github():
    secret, body = "It's a Secret to Everybody", "Hello, World!"
    signature = mac("sha256", secret.encode(), body.encode()).hex()
    assert signature == "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    add("github", secret, {"content-type": "text/plain", "x-hub-signature-256": f"sha256={signature}"}, body, True)


def shopify():
    secret = "hush"
    signature = base64.b64encode(mac("sha256", secret.encode(), BODY.encode())).decode()
    add("shopify", secret, {**JSON, "x-shopify-hmac-sha256": signature}, BODY)


def slack():
    secret, timestamp = "8f742231b10e8888abcd99yyyzzz85a5", 1531420618
    body = (
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        "&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = mac("sha256", secret.encode(), f"v0:{timestamp}:".encode(), body.encode()).hex()
    assert signature == "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    headers = {**FORM, "x-slack-request-timestamp": str(timestamp), "x-slack-signature": f"v0={signature}"}
    add("slack", secret, headers, body, True, now=timestamp)


def twilio():
    token, url = "12345", "https://mycompany.com/myapp.php?foo=1&bar=2"
    body = "To=%2B18005551212&CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309"
    text = "".join(name + value for name, value in sorted(parse_qsl(body, keep_blank_values=True)))
    signature = base64.b64encode(mac("sha1", token.encode(), url.encode(), text.encode())).decode()
    assert signature == "RSOYDt4T1cUTdK1PDd93/VVr8B8="
    add("twilio", token, {**FORM, "x-twilio-signature": signature}, body, True, url=url)

    body = "Tag=b&Tag=a&Tag=b&Empty=&Body=a+b%26c+%C3%A9"
    text = "Body" + "a b&c \u00e9" + "Empty" + "Taga" + "Tagb"
    signature = base64.b64encode(mac("sha1", token.encode(), url.encode(), text.encode())).decode()
    add("twilio", token, {**FORM, "x-twilio-signature": signature}, body, url=url)
    with_port = url.replace("mycompany.com", "mycompany.com:443")
    signature = base64.b64encode(mac("sha1", token.encode(), with_port.encode(), text.encode())).decode()
    add("twilio", token, {**FORM, "x-twilio-signature": signature}, body, url=url)

    url = f"{URL}?foo=1&bodySHA256={hashlib.sha256(BODY.encode()).hexdigest()}"
    signature = base64.b64encode(mac("sha1", token.encode(), url.encode())).decode()
    add("twilio", token, {**JSON, "x-twilio-signature": signature}, BODY, url=url)


def standard_webhooks():
    secret, identity, timestamp = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    body, key = '{"test": 2432232314}', base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = base64.b64encode(mac("sha256", key, f"{identity}.{timestamp}.{body}".encode())).decode()
    assert signature == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = {**JSON, "webhook-id": identity, "webhook-timestamp": str(timestamp)}
    add("standard-webhooks", secret, {**headers, "webhook-signature": f"v1,{signature}"}, body, True, now=timestamp)
    several = f"v1a,{signature} v1,{'A' * 43}= v1,{signature}"
    add("standard-webhooks", secret, {**headers, "webhook-signature": several}, body, now=timestamp)


def paddle():
    secret = "pdl_ntfset_01h_secret"
    signature = mac("sha256", secret.encode(), b"1700000000:", BODY.encode()).hex()
    add("paddle", secret, {**JSON, "paddle-signature": f"ts={NOW};h1={'0' * 64};h1={signature}"}, BODY)


def gitlab():
    add("gitlab", "glhook-of-mine", {**JSON, "x-gitlab-token": "glhook-of-mine"}, BODY)
    key = bytes(range(32))
    signature = base64.b64encode(mac("sha256", key, b"f5e5f430.1700000000.", BODY.encode())).decode()
    headers = {**JSON, "webhook-id": "f5e5f430", "webhook-timestamp": str(NOW), "webhook-signature": f"v1,{signature}"}
    add("gitlab", "whsec_" + base64.b64encode(key).decode(), headers, BODY)


def linear():
    secret = "lin_wh_secret"
    add("linear", secret, {**JSON, "linear-signature": mac("sha256", secret.encode(), BODY.encode()).hex()}, BODY)


def pagerduty():
    secret = "pagerduty-secret"
    signature = mac("sha256", secret.encode(), BODY.encode()).hex()
    add("pagerduty", secret, {**JSON, "x-pagerduty-signature": f"v1={'0' * 64},v1={signature}"}, BODY)


def grafana():
    secret = "grafana-secret"
    signature = mac("sha256", secret.encode(), BODY.encode()).hex()
    add("grafana", secret, {**JSON, "x-grafana-alerting-signature": signature}, BODY)
    signature = mac("sha256", secret.encode(), b"1700000000:", BODY.encode()).hex()
    headers = {**JSON, "x-grafana-alerting-signature": signature, "x-grafana-alerting-timestamp": str(NOW)}
    add("grafana", secret, headers, BODY, timestamp_header="x-grafana-alerting-timestamp")


def terraform():
    secret = "terraform-token"
    signature = mac("sha512", secret.encode(), BODY.encode()).hex()
    add("terraform", secret, {**JSON, "x-tfe-notification-signature": signature}, BODY)


def plain_hmac():
    # The second case of RFC 4231 and of RFC 2202.
    secret, body = "Jefe", "what do ya want for nothing?"
    figures = {
        "sha1": "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
        "sha256": "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        "sha512": "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd"
                  "caeab1a34d4a6b4b636e070a38bce737",
    }
    for algorithm, figure in figures.items():
        digest = mac(algorithm, secret.encode(), body.encode())
        assert digest.hex() == figure
        for encoding, text in [("hex", digest.hex()), ("base64", base64.b64encode(digest).decode())]:
            headers = {"content-type": "text/plain", "x-signature": f"{algorithm}={text}"}
            settings = {"header": "X-Signature", "prefix": f"{algorithm}=", "encoding": encoding, "algorithm": algorithm}
            add("hmac", secret, headers, body, True, hmac=settings)


for write in [stripe, github, shopify, slack, twilio, standard_webhooks, paddle, gitlab, linear, pagerduty, grafana,
              terraform, plain_hmac]:
    write()
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
print(f"{len(vectors)} vectors")
