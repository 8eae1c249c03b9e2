"""Errors as gRPC's client raises them."""

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2


def rpc_error(
    code: grpc.StatusCode,
    message: str,
    *,
    reason: str = "",
    domain: str = "steprail",
    details: tuple[Message, ...] = (),
    metadata: dict[str, str] | None = None,
) -> grpc.aio.AioRpcError:
    packed = [any_pb2.Any() for _ in range(len(details) + bool(reason))]
    facts = {"key": "value"} if metadata is None else metadata
    info = (error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=facts),) if reason else ()
    for target, detail in zip(packed, (*info, *details), strict=True):
        target.Pack(detail)
    status = status_pb2.Status(code=code.value[0], message=message, details=packed)
    trailing = grpc.aio.Metadata(*([("grpc-status-details-bin", status.SerializeToString())] if packed else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, message)
