"""A client that has opened the printed link of a dashboard, without a browser."""

from flask import Flask
from flask.testing import FlaskClient

from hvdtune.dashboard.gate import KEY_HEADER


def visitor(server: Flask, token: str) -> FlaskClient:
    client = server.test_client()
    leads_to = client.get(f"/?token={token}").headers["Location"]
    variable = f"HTTP_{KEY_HEADER.upper().replace('-', '_')}"
    client.environ_base[variable] = leads_to.partition("#key=")[2]
    return client
