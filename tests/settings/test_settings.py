"""Settings: defaults, checks, and errors that name the way out."""

import dataclasses
import pickle

import pytest

from warren import Settings
from warren.settings import SettingsError
from warren.settings.management_urls import management_urls


def test_defaults_are_those_of_the_specification():
    """Defaults are those of amqp-broker section 1, flow-control section 1 and queue-and-store section 1."""
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 5672)
    assert (settings.frame_max, settings.channel_max, settings.heartbeat) == (131_072, 2_047, 60)
    assert settings.handshake_timeout == 10_000
    assert settings.max_message_size == 134_217_728
    assert settings.consumer_timeout == 1_800_000
    assert settings.credit_flow_default_credit == (400, 200)
    assert (settings.vm_memory_high_watermark, settings.vm_memory_high_watermark_paging_ratio) == (0.4, 0.5)
    assert (settings.memory_monitor_interval, settings.disk_free_limit) == (500, 50_000_000)
    assert settings.data_dir is None
    assert (settings.tls_port, settings.tls_verify, settings.ssl_handshake_timeout) == (None, "none", 5_000)


def test_every_setting_is_documented_in_itself():
    """Every setting has its description, which the table in docs/embedding.md shows."""
    for item in dataclasses.fields(Settings):
        assert item.metadata["doc"], item.name


def test_settings_travel_between_processes():
    """Settings can be pickled, because every process of a node gets them in a message."""
    settings = Settings(port=0, server_properties={"owner": "team-a"})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_an_unknown_key_names_the_nearest_known_one():
    with pytest.raises(SettingsError, match="unknown setting 'heart_beat'; did you mean 'heartbeat'?"):
        Settings.of(heart_beat=10)


def test_a_key_like_no_other_lists_the_known_ones():
    with pytest.raises(SettingsError, match="known settings: host, port"):
        Settings.of(zzzz=1)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("port", 65_536, "a whole number from 0 to 65535"),
        ("port", "5672", "a whole number"),
        ("port", True, "a whole number"),
        ("frame_max", 4_095, "a whole number from 4096 to 2147483647, or 0"),
        ("max_message_size", 536_870_913, "a whole number from 0 to 536870912"),
        ("tls_verify", "always", "one of: none, optional, required"),
        ("tls_cert_file", 7, "a path"),
        ("host", 127, "a text"),
        ("host", None, "leave it out"),
        ("auth_mechanisms", "PLAIN", "a list"),
        ("auth_mechanisms", [1], "a list of texts"),
        ("server_properties", {"owner": 1}, "a table of texts"),
        ("default_consumer_prefetch", (1, 2), "a pair"),
        ("data_dir", 1, "a path"),
        ("data_dir", "", "a path, which is not empty"),
        ("control_dir", "a\0b", "a path, which is not empty and has no zero byte"),
        ("stop_timeout", 10**12, "a whole number from 0 to 86400000"),
        ("total_memory_available_override_value", 2**63, "a whole number of bytes"),
        ("disk_free_limit", "9" * 400, "or a whole number of bytes"),
        ("vm_memory_high_watermark", 1.5, "a share of memory from 0.0 to 1.0, or a whole number of bytes"),
        ("vm_memory_high_watermark_paging_ratio", 0, "a number above 0.0"),
        ("vm_memory_high_watermark_paging_ratio", "0.5", "a number above 0.0"),
        ("total_memory_available_override_value", "1.5GB", "'512MiB' or '2GB'"),
        ("management_path_prefix", 1, "a text, such as '/warren'"),
        ("disk_free_limit", "1 disk", "a multiple of memory such as 1.5, or"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_wanted(key, value, reason):
    with pytest.raises(SettingsError, match=f"setting '{key}'") as caught:
        Settings(**{key: value})
    assert reason in str(caught.value)
    assert caught.value.key == key


@pytest.mark.parametrize("key", ["default_pass", "cluster_cookie"])
def test_a_secret_of_the_wrong_type_is_not_in_the_error(key):
    with pytest.raises(SettingsError) as caught:
        Settings(**{key: 12345})
    assert str(caught.value) == f"setting '{key}' must be a text in quotes, and this is a int"


@pytest.mark.parametrize("pair", [(200, 50), (400, 400), (0, 0), (1, 1)])
def test_credit_pairs_that_work(pair):
    """Credit pairs with 0 < M <= I, and the pair of zeros, are accepted (FC-1)."""
    assert Settings(credit_flow_default_credit=pair).credit_flow_default_credit == pair


@pytest.mark.parametrize("pair", [(200, 400), (400, 0), (0, 1)])
def test_credit_pairs_that_would_stall(pair):
    """Any other credit pair would stall, and is a start-up error that names the key (FC-1)."""
    with pytest.raises(SettingsError, match="credit_flow_default_credit"):
        Settings(credit_flow_default_credit=pair)


def test_a_toml_file_is_read_and_keywords_win(tmp_path):
    file = tmp_path / "warren.toml"
    file.write_text("port = 5673\nheartbeat = 10\ncredit_flow_default_credit = [200, 50]\nconsumer_timeout = false\n")
    settings = Settings.from_toml(file, port=0)
    assert (settings.port, settings.heartbeat, settings.credit_flow_default_credit) == (0, 10, (200, 50))
    assert settings.consumer_timeout is None


def test_limits_as_rabbitmq_writes_them(tmp_path):
    """Limits can be written with RabbitMQ's dotted keys, and a relative one wins over an absolute one (queue-and-store
    sections 8.1 and 8.6).
    """
    file = tmp_path / "warren.toml"
    file.write_text(
        'vm_memory_high_watermark.absolute = "2GB"\n'
        "disk_free_limit.relative = 1.5\n"
        'total_memory_available_override_value = "8GB"\n'
    )
    settings = Settings.from_toml(file)
    assert (settings.vm_memory_high_watermark, settings.disk_free_limit) == (2_000_000_000, 1.5)
    assert settings.total_memory_available_override_value == 8_000_000_000
    file.write_text('heartbeat = 5\nvm_memory_high_watermark.absolute = "lots"\n')
    with pytest.raises(SettingsError, match=r"warren\.toml, line 2: setting 'vm_memory_high_watermark' is .*'lots'"):
        Settings.from_toml(file)


@pytest.mark.parametrize("ratio", [0.5, 1, 1.5])
def test_a_paging_ratio_of_one_and_more(ratio):
    """The paging ratio may be any value above 0, also 1 and more (D-13)."""
    assert Settings(vm_memory_high_watermark_paging_ratio=ratio).vm_memory_high_watermark_paging_ratio == ratio


def test_a_wrong_key_in_a_file_names_file_and_line(tmp_path):
    file = tmp_path / "warren.toml"
    file.write_text("# mine\nheartbeat = 10\nprot = 5673\n")
    with pytest.raises(SettingsError, match=r"warren\.toml, line 3: unknown setting 'prot'; did you mean 'port'\?"):
        Settings.from_toml(file)


def test_a_wrong_value_in_a_file_names_file_and_line(tmp_path):
    file = tmp_path / "warren.toml"
    file.write_text("\nport = -1\n")
    with pytest.raises(SettingsError, match=r"warren\.toml, line 2: setting 'port' is -1"):
        Settings.from_toml(file)


def test_a_file_that_is_not_toml_says_where_it_breaks(tmp_path):
    file = tmp_path / "warren.toml"
    file.write_text("port: 5673\n")
    with pytest.raises(SettingsError, match=r"warren\.toml: this is not TOML: .*line 1"):
        Settings.from_toml(file)


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({"tls_port": 5671}, "tls_cert_file", "must be the path of the broker's certificate when tls_port is set"),
        (
            {"tls_port": 5672, "tls_cert_file": "c"},
            "tls_port",
            "must be another port than that of connections without TLS",
        ),
        (
            {"tls_port": 5671, "tls_cert_file": "c", "tls_verify": "required"},
            "tls_ca_file",
            "when tls_verify is 'required'",
        ),
    ],
)
def test_tls_settings_that_do_not_fit_together(values, key, reason):
    with pytest.raises(SettingsError, match=reason) as caught:
        Settings.of(**values)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("given", "path"), [("", "/"), ("/", "/"), ("warren", "/warren/"), ("/warren/", "/warren/"), ("/a/b", "/a/b/")]
)
def test_the_address_of_the_management_page_has_the_prefix_of_its_paths(given, path):
    """The start-up report shows it. The process takes a prefix with and without slashes."""
    settings = Settings(management=True, management_path_prefix=given)
    assert management_urls(settings)[0] == ("management", f"http://127.0.0.1:15672{path}")
