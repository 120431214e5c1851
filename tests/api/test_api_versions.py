"""ApiVersions: what is offered, and to whom."""

from millrace.errors import Error
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.fetch import FetchRequest
from millrace.wire.messages.produce import ProduceRequest

from .conftest import Call


def test_every_handler_is_offered_with_its_versions(call: Call) -> None:
    response = call(ApiVersionsRequest(client_software_name="test", client_software_version="1.0"))
    offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert offered[FetchRequest.api_key] == (4, 18)
    assert list(offered) == sorted(offered)


def test_produce_is_offered_from_0_for_the_sake_of_old_librdkafka(call: Call) -> None:
    response = call(ApiVersionsRequest(), version=0)
    produce = next(api for api in response.api_keys if api.api_key == ProduceRequest.api_key)
    assert (produce.min_version, produce.max_version) == (0, 13)


def test_a_client_must_name_its_software_properly(call: Call) -> None:
    for name, version in (("", "1"), ("ok", "-1"), ("sp ace", "1"), ("ok", "1\n")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert call(request, version=3).error_code == Error.INVALID_REQUEST
        assert call(request, version=2).error_code == Error.NONE


def test_no_features_are_claimed(call: Call) -> None:
    response = call(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert response.supported_features == response.finalized_features == []
