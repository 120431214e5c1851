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


def test_features_have_their_finalized_level(call: Call) -> None:
    response = call(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    supported = {feature.name: feature for feature in response.supported_features}
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized["transaction.version"] == 2
    assert response.finalized_features_epoch >= 0
    for name, level in finalized.items():
        assert supported[name].min_version <= level <= supported[name].max_version


def test_clients_of_version_3_are_spared_features_whose_lowest_level_is_0(call: Call) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = call(request, version=3)
    assert all(feature.min_version > 0 for feature in response.supported_features)
    assert "transaction.version" in {feature.name for feature in response.finalized_features}
