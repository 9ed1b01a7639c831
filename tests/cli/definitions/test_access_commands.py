"""The commands for users, permissions, policies, parameters, limits and virtual hosts, as rabbitmqctl has them."""

from __future__ import annotations

import io
import json
import sys

import pika
import pika.exceptions
import pytest

from warren import Broker
from warren.cli.main import main

DONE = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! "
    "See 'warren set_permissions --help' to learn more."
)
OVERRIDE = (
    'Setting operator policy override "o" for pattern "^o" to "{"max-length":1}" with priority "0" for vhost "/" ...'
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests of the file; each test uses names of its own."""
    with Broker(control_dir=str(tmp_path_factory.mktemp("node") / "control")) as broker:
        yield broker


@pytest.fixture
def run(broker, monkeypatch, capfd):
    """`run(*arguments)` runs a command in this process, and returns its exit code, lines of output and error text."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("WARREN_DATA_DIR", broker.settings.control_dir.removesuffix("/control"))
        with pytest.raises(SystemExit) as end:
            main()
        captured = capfd.readouterr()
        return end.value.code, captured.out.splitlines(), captured.err

    return run


def test_the_life_of_a_user(broker, run):
    """A user is added, tagged, authenticated and deleted with rabbitmqctl's texts and exit codes (CM-18, CM-80 to
    CM-86).
    """
    assert run("add_user", "ann", "secret") == (
        0,
        [
            'Adding user "ann" ...',
            DONE,
        ],
        "",
    )
    assert run("add_user", "ann", "secret") == (70, ['Adding user "ann" ...'], 'Error:\nUser "ann" already exists\n')
    assert run("set_user_tags", "ann", "management", "policymaker") == (
        0,
        ['Setting tags for user "ann" to [management, policymaker] ...'],
        "",
    )
    code, lines, _ = run("-q", "list_users")
    assert (code, lines[0]) == (0, "user\ttags")
    assert set(lines[1:]) == {"ann\t[management, policymaker]", "guest\t[administrator]"}
    assert run("authenticate_user", "ann", "secret") == (0, ['Authenticating user "ann" ...', "Success"], "")
    code, _, error = run("authenticate_user", "ann", "bad")
    assert (code, error) == (
        65,
        "Error:\nError: failed to authenticate user \"ann\"\nuser 'ann' - invalid credentials\n",
    )
    assert run("change_password", "ann", stdin="other\n") == (0, ['Changing password for user "ann" ...'], "")
    assert run("-q", "authenticate_user", "ann", "other") == (0, ["Success"], "")
    assert run("clear_password", "ann") == (0, ['Clearing password for user "ann" ...'], "")
    assert run("-q", "authenticate_user", "ann", "other")[0] == 65
    assert run("delete_user", "ann") == (0, ['Deleting user "ann" ...'], "")
    assert run("-q", "delete_user", "ann") == (67, [], 'Error:\nUser "ann" does not exist\n')
    assert run("change_password", "ann")[0] == 65


def test_a_user_with_an_empty_password_cannot_log_in_with_one(broker, run):
    """Nobody can log in with an empty password. Like RabbitMQ, the commands accept one, because scripts add the users
    of client certificates so; an empty standard input is refused (CM-80, CM-82, CM-83).
    """
    assert run("add_user", "cert", "") == (0, ['Adding user "cert" ...', DONE], "")
    assert run("set_permissions", "cert", "", "", "")[0] == 0
    assert run("authenticate_user", "cert", "")[0] == 65
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(pika.URLParameters(broker.url.replace("guest:guest", "cert:")))
    assert run("change_password", "cert", "secret")[0] == run("authenticate_user", "cert", "secret")[0] == 0
    assert run("change_password", "cert", "") == (0, ['Changing password for user "cert" ...'], "")
    assert run("authenticate_user", "cert", "secret")[0] == 65
    assert run("change_password", "cert", stdin="")[0] == 65, "nothing was given"
    run("delete_user", "cert")


def test_the_last_administrator_who_loses_his_password_is_named(broker, run):
    code, _, error = run("change_password", "guest", "")
    assert run("change_password", "guest", "guest")[0] == 0
    assert code == 0 and "no user with the tag 'administrator' can log in" in error


def test_permissions_let_a_user_in(broker, run):
    """A user can connect only after getting permissions, which are listed and cleared as topic permissions are (CM-95
    to CM-102).
    """
    run("add_user", "bob", stdin="secret\n")
    url = broker.url.replace("guest:guest", "bob:secret")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        pika.BlockingConnection(pika.URLParameters(url))
    assert run("set_permissions", "bob", "^a", "^b", "^c") == (
        0,
        ['Setting permissions for user "bob" in vhost "/" ...'],
        "",
    )
    connection = pika.BlockingConnection(pika.URLParameters(url))
    assert "bob\t^a\t^b\t^c" in run("list_permissions")[1]
    assert run("list_user_permissions", "bob")[1] == [
        'Listing permissions for user "bob" ...',
        "vhost\tconfigure\twrite\tread",
        "/\t^a\t^b\t^c",
    ]
    assert run("set_topic_permissions", "bob", "amq.topic", "x", "y")[1] == [
        'Setting topic permissions on "amq.topic" for user "bob" in vhost "/" ...'
    ]
    assert run("-q", "list_topic_permissions")[1] == ["user\texchange\twrite\tread", "bob\tamq.topic\tx\ty"]
    assert run("-q", "list_user_topic_permissions", "bob")[1][-1] == "/\tamq.topic\tx\ty"
    assert run("clear_topic_permissions", "bob")[1] == ['Clearing topic permissions for user "bob" in vhost "/" ...']
    assert run("list_topic_permissions")[1] == ['Listing topic permissions for vhost "/" ...']
    assert run("clear_permissions", "bob")[1] == ['Clearing permissions for user "bob" in vhost "/" ...']
    assert run("-q", "list_user_permissions", "bob")[:2] == (0, [])
    assert run("set_permissions", "bob", "*", "", "")[0] == 69
    assert run("set_permissions", "nobody", "", "", "")[0] == 67
    assert run("list_permissions", "-p", "nix")[0] == 65
    assert run("set_permissions", "bob", ".*")[0] == 64
    connection.close()
    run("delete_user", "bob")


def test_policies(broker, run):
    """Policies and operator policies are set, listed and cleared, and wrong ones are refused (CM-30, CM-121, CM-123 to
    CM-126).
    """
    assert run("set_policy", "p", "^p", '{"max-length":1}', "--priority", "3") == (
        0,
        ['Setting policy "p" for pattern "^p" to "{"max-length":1}" with priority "3" for vhost "/" ...'],
        "",
    )
    assert run("list_policies")[1] == [
        'Listing policies for vhost "/" ...',
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority",
        '/\tp\t^p\tall\t{"max-length":1}\t3',
    ]
    broker.declare_queue("p1")
    assert run("-q", "list_queues", "name", "policy")[1] == ["name\tpolicy", "p1\tp"]
    assert json.loads("".join(run("list_policies", "--formatter", "json")[1]))[0]["definition"] == '{"max-length":1}'
    code, _, error = run("set_policy", "p", "^p", '{"bogus":1}')
    assert code == 69 and "not recognised policy setting" in error.replace("is not a recognised", "not recognised")
    assert run("set_policy", "p", "(", '{"max-length":1}')[0] == 69
    assert run("set_policy", "p", "^p", "{")[0] == 69
    assert run("set_policy", "p", "^p", '{"max-length":1}', "--priority", "x")[0] == 64
    assert run("clear_policy", "p")[1] == ['Clearing policy "p" on vhost "/" ...']
    assert run("clear_policy", "p")[0] == 69
    assert run("set_operator_policy", "o", "^o", '{"max-length":1}')[1] == [OVERRIDE]
    assert run("list_operator_policies")[1][0] == 'Listing operator policy overrides for vhost "/" ...'
    rule = '{"pattern":"^o","apply-to":"queues","definition":{"max-length":1},"priority":0}'
    assert run("-q", "list_parameters")[1] == ["component\tname\tvalue", f"operator_policy\to\t{rule}"]
    run("set_policy", "p", "^p", '{"max-length":1}')
    assert len(run("-q", "list_parameters")[1]) == 2, "policies are no parameters"
    run("clear_policy", "p")
    assert run("clear_operator_policy", "o")[:2] == (0, ['Clearing operator policy "o" on vhost "/" ...'])


def test_limits(broker, run):
    """Limits of users and virtual hosts are set, listed and cleared (CM-87 to CM-89, CM-111 to CM-113, CM-121)."""
    run("add_user", "lim", "secret")
    limits = '{"max-connections":1}'
    assert run("set_user_limits", "lim", limits)[1] == [f'Setting user limits to "{limits}" for user "lim" ...']
    assert run("list_user_limits", "--user", "lim")[1] == ['Listing limits for user "lim" ...', limits]
    assert run("-q", "list_user_limits", "--global")[1] == ["user\tlimits", f"lim\t{limits}"]
    assert run("-q", "list_user_limits")[1] == ["{}"]
    assert run("clear_user_limits", "lim", "all")[1] == ['Clearing all limits for user "lim" ...']
    assert run("set_user_limits", "lim", '{"x":1}')[0] == 69
    run("delete_user", "lim")
    limits = '{"max-queues":100}'
    assert run("set_vhost_limits", limits)[1] == [f'Setting vhost limits to "{limits}" for vhost "/" ...']
    assert run("list_vhost_limits")[1] == ['Listing limits for vhost "/" ...', limits]
    assert run("-q", "list_vhost_limits", "--global")[1] == ["vhost\tlimits", f"/\t{limits}"]
    assert run("-q", "list_parameters")[1] == ["component\tname\tvalue", f"vhost-limits\tlimits\t{limits}"]
    assert run("clear_vhost_limits")[1] == ['Clearing vhost "/" limits ...']
    assert run("-q", "list_vhost_limits")[1] == ["{}"]


def test_parameters(broker, run):
    """Global parameters are set, listed and cleared; a parameter of an unknown component, or of `policy`, is refused
    (CM-120 to CM-122).
    """
    assert run("set_global_parameter", "g", '{"a":1}')[1] == ['Setting global runtime parameter "g" to "{"a":1}" ...']
    assert 'g\t{"a":1}' in run("list_global_parameters")[1]
    assert run("clear_global_parameter", "g")[1] == ['Clearing global runtime parameter "g" ...']
    assert run("set_parameter", "nix", "n", "1")[0] == 69
    assert run("clear_parameter", "nix", "n")[0] == 69
    rule = '{"pattern":"^x","definition":{"max-length":3}}'
    assert run("-q", "set_parameter", "policy", "p", rule)[::2] == (
        69,
        "Error:\npolicies may not be set using this method\n",
    )
    assert run("-q", "clear_parameter", "policy", "p")[::2] == (
        69,
        "Error:\npolicies may not be cleared using this method\n",
    )


def test_virtual_hosts(broker, run):
    """Virtual hosts are added, tagged, traced, listed and deleted (CM-105 to CM-108, CM-110)."""
    assert run("add_vhost", "orders", "--description", "for orders", "--tags", "a,b") == (
        0,
        ['Adding vhost "orders" ...'],
        "",
    )
    assert run("add_vhost", "orders")[0] == 0
    assert "orders\tfor orders\t[a, b]" in run("list_vhosts", "name", "description", "tags")[1]
    assert run("-q", "list_vhosts")[1][0] == "name"
    assert "/\tDefault virtual host\t[]" in run("list_vhosts", "name", "description", "tags")[1]
    assert run("set_vhost_tags", "/", "a")[0] == 0
    assert "/\tDefault virtual host\t[a]" in run("list_vhosts", "name", "description", "tags")[1]
    assert run("set_vhost_tags", "/")[0] == 0
    assert run("list_vhosts", "nix")[0] == 64
    assert run("set_vhost_tags", "orders", "c")[1] == ['Setting tags for virtual host "orders" to [c] ...']
    assert run("trace_on", "-p", "orders")[1] == [
        'Starting tracing for vhost "orders" ...',
        "Trace enabled for vhost orders",
    ]
    assert run("trace_off", "-p", "orders")[1][-1] == "Trace disabled for vhost orders"
    assert run("trace_on", "-p", "nix")[0] == 65
    assert run("delete_vhost", "orders")[:2] == (0, ['Deleting vhost "orders" ...'])
    assert run("delete_vhost", "orders")[0] == 65


def test_the_default_queue_type_of_a_virtual_host(broker, run):
    """A virtual host that exists gets the default type that is given, and an unknown type changes nothing (AB-91,
    CM-105). The exit code of the refusal is rabbitmqctl's.
    """
    assert run("add_vhost", "typed", "--default-queue-type", "stream")[0] == 0
    assert run("add_vhost", "typed", "--default-queue-type", "quorum")[0] == 0
    assert "typed\tquorum" in run("list_vhosts", "name", "default_queue_type")[1]
    broker.declare_queue("q", vhost="typed", durable=True)
    assert "q\tquorum" in run("-q", "list_queues", "-p", "typed", "name", "type")[1]
    code, _, err = run("add_vhost", "odd", "--default-queue-type", "lazy")
    assert code == 70
    assert err.startswith("Error:\ninvalid_queue_type: the default queue type is one of classic, quorum, stream, not")
    assert "odd" not in broker.vhosts()
