"""Show that the client package works with the protobuf and grpcio of the environment that runs this script.

`make test-proto-range` runs it at both ends of the range that clients/python/pyproject.toml allows. With --floor the
environment has to be the lower end: exactly the lowest versions that the package accepts.
"""

import argparse
import importlib
import pkgutil
import re
import sys
import tomllib
import warnings
from concurrent import futures
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, ServiceDescriptor
from google.protobuf.message import Message

CLIENT = Path(__file__).resolve().parent.parent / "clients" / "python"

_TIMEOUT_SECONDS = 10
# Every message nests less deeply than this unless it nests itself.
_DEPTH = 8

_SAMPLES: dict[int, object] = {
    FieldDescriptor.TYPE_BOOL: True,
    FieldDescriptor.TYPE_BYTES: b"\x00\xff",
    FieldDescriptor.TYPE_DOUBLE: 0.5,
    FieldDescriptor.TYPE_ENUM: 1,
    FieldDescriptor.TYPE_INT32: -3,
    FieldDescriptor.TYPE_INT64: -(2**40),
    FieldDescriptor.TYPE_STRING: "text",
}


def require_floor() -> None:
    """Raise SystemExit unless every dependency is installed at its floor; `1.70` and `1.70.0` are the same."""
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    for line in project["dependencies"]:
        name, floor = line.partition(",")[0].split(">=")
        if not re.fullmatch(re.escape(floor) + r"(\.0)*", version(name)):
            raise SystemExit(f"{name}: the floor is {floor}, but {version(name)} is installed; run `make lock`")


def import_everything() -> dict[str, ModuleType]:
    """Import each module of the package; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        package = importlib.import_module("steprail")
        names = [module.name for module in pkgutil.walk_packages(package.__path__, "steprail.")]
        return {name: importlib.import_module(name) for name in names}


def fill(target: Message, depth: int = _DEPTH) -> None:
    """Set every field; of a oneof the last one stays."""
    for field in target.DESCRIPTOR.fields:
        value: Any = getattr(target, field.name)
        if field.message_type is None and hasattr(value, "append"):
            value.append(_SAMPLES[field.type])
        elif field.message_type is None:
            setattr(target, field.name, _SAMPLES[field.type])
        elif field.message_type.GetOptions().map_entry:
            value["key"] = "text"
        elif depth > 0:
            child = value.add() if hasattr(value, "add") else value
            child.SetInParent()
            fill(child, depth - 1)


def round_trip(kind: type[Message]) -> None:
    """Raise SystemExit unless a filled message comes back equal from its bytes."""
    sent = kind()
    fill(sent)
    data = sent.SerializeToString(deterministic=True)
    if kind.FromString(data) != sent or bool(data) != bool(sent.DESCRIPTOR.fields):
        raise SystemExit(f"{sent.DESCRIPTOR.full_name} does not survive a round trip")


def call_unary(stub: object, service: ServiceDescriptor) -> None:
    """Call a unary method of a stub whose server runs the generated servicer.

    That servicer implements nothing, so its own answer to the call, UNIMPLEMENTED with its own text, is the proof that
    the call went through stub, wire and servicer.
    """
    method = next(m for m in service.methods if not m.server_streaming and not m.client_streaming)
    request = message_factory.GetMessageClass(method.input_type)()
    call = getattr(stub, method.name).future(request, timeout=_TIMEOUT_SECONDS)
    call.exception()
    if call.code() is not grpc.StatusCode.UNIMPLEMENTED or call.details() != "Method not implemented!":
        raise SystemExit(f"{method.full_name}: {call.code()} {call.details()}, not the generated servicer's answer")


def call_services(modules: dict[str, ModuleType]) -> int:
    """Serve every generated servicer on loopback, call each, and return how many there are."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    port = server.add_insecure_port("127.0.0.1:0")
    services = [
        (modules[f"{name}_grpc"], service)
        for name, module in modules.items()
        if name.endswith("_pb2")
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    for module, service in services:
        servicer = getattr(module, f"{service.name}Servicer")()
        getattr(module, f"add_{service.name}Servicer_to_server")(servicer, server)
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for module, service in services:
                call_unary(getattr(module, f"{service.name}Stub")(channel), service)
    finally:
        server.stop(grace=None).wait(_TIMEOUT_SECONDS)
    return len(services)


def main() -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(description="Try the client package in this environment.")
    parser.add_argument("--floor", action="store_true", help="the environment must be the lowest that is allowed")
    if parser.parse_args().floor:
        require_floor()
    sys.path.insert(0, str(CLIENT / "src"))
    modules = import_everything()
    kinds = [
        message_factory.GetMessageClass(described)
        for name, module in modules.items()
        if name.endswith("_pb2")
        for described in module.DESCRIPTOR.message_types_by_name.values()
    ]
    for kind in kinds:
        round_trip(kind)
    services = call_services(modules)
    if not kinds or not services:
        raise SystemExit("found no message or no service: steprail.v1 is not what was imported")
    sys.stdout.write(
        f"protobuf {version('protobuf')}, grpcio {version('grpcio')}, Python {sys.version.split()[0]}: "
        f"{len(modules)} modules imported, {len(kinds)} messages and {services} services tried\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
