"""The commands for users, their permissions and their limits (CM-80 to CM-102)."""

from __future__ import annotations

import difflib
import sys

import click

from ..failure import EX_DATAERR, CommandFailure
from ..node_command import BadArguments, Call, node_command

USERS = "Users"
ACCESS = "Access control"

#: The tags that give rights.
TAGS = ("administrator", "monitoring", "policymaker", "management")
#: A tag at least this similar to one of TAGS is probably misspelt, as 'admin' is, so the command warns.
SIMILAR_TAG = 0.5

PASSWORD = click.argument("password", required=False)


def _password(given: str | None) -> str:
    """The password given as an argument; without one, a line of standard input."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, err=True))
    read = sys.stdin.readline().rstrip("\r\n")
    if not read:
        raise CommandFailure("Password is not provided via argument or stdin", EX_DATAERR)
    return read


@node_command(USERS)
@click.argument("username")
@PASSWORD
@click.option("--pre-hashed-password", metavar="HASH", help="The password's salted hash, as in exported definitions.")
def add_user(call: Call, username: str, password: str | None, pre_hashed_password: str | None) -> None:
    """Add the user USERNAME. Without PASSWORD one line is read from standard input, which keeps it secret."""
    if not username:
        raise BadArguments("Bad argument: user cannot be an empty string", is_data=True)
    call.banner(f'Adding user "{username}" ...')
    if pre_hashed_password is not None:
        call.ask("add_user", user=username, password_hash=pre_hashed_password)
    else:
        call.ask("add_user", user=username, password=_password(password))
    if call.is_machine:
        call.done()
    else:
        call.remark(
            "Done. Don't forget to grant the user permissions to some virtual hosts! "
            "See 'warren set_permissions --help' to learn more."
        )


@node_command(USERS, 'Deleting user "{username}" ...')
@click.argument("username")
def delete_user(call: Call, username: str) -> None:
    """Delete the user USERNAME with all permissions, and close the user's connections."""
    call.change("delete_user", user=username)
    call.done()


@node_command(USERS, 'Changing password for user "{username}" ...')
@click.argument("username")
@PASSWORD
def change_password(call: Call, username: str, password: str | None) -> None:
    """Change the password of USERNAME to PASSWORD, which is read from standard input if it is not given."""
    call.change("change_password", user=username, password=_password(password))
    call.done()


@node_command(USERS, 'Clearing password for user "{username}" ...')
@click.argument("username")
def clear_password(call: Call, username: str) -> None:
    """Remove the password of USERNAME, so that the user cannot log in with a password."""
    call.change("clear_password", user=username)
    call.done()


@node_command(USERS, 'Authenticating user "{username}" ...')
@click.argument("username")
@PASSWORD
def authenticate_user(call: Call, username: str, password: str | None) -> None:
    """Check the PASSWORD of USERNAME; exit 65 if it is wrong."""
    call.ask("authenticate_user", user=username, password=_password(password))
    call.say("Success")


@node_command(USERS)
@click.argument("username")
@click.argument("tag", nargs=-1)
def set_user_tags(call: Call, username: str, tag: tuple[str, ...]) -> None:
    """Give USERNAME exactly the tags TAG ...; without any, all tags of the user are removed."""
    call.banner(f'Setting tags for user "{username}" to [{", ".join(tag)}] ...')
    call.change("set_user_tags", user=username, tags=list(tag))
    for each in tag:
        near = [] if each in TAGS else difflib.get_close_matches(each, TAGS, n=1, cutoff=SIMILAR_TAG)
        if near:
            text = f"the tag '{each}' gives no rights. Did you mean '{near[0]}'?"
            click.secho(f"Warning: {text}", err=True, fg="yellow")
    call.done()


@node_command(USERS, "Listing users ...", timeout=60.0)
def list_users(call: Call) -> None:
    """List the users with their tags."""
    call.list(("user", "tags"), call.node.rows("list_users"))


@node_command(USERS, 'Setting user limits to "{definition}" for user "{username}" ...')
@click.argument("username")
@click.argument("definition")
def set_user_limits(call: Call, username: str, definition: str) -> None:
    """Set limits of USERNAME. DEFINITION is a JSON object with max-connections and max-channels; -1 is no limit."""
    call.ask("set_user_limits", user=username, limits=definition)
    call.done()


@node_command(USERS)
@click.argument("username")
@click.argument("limit")
def clear_user_limits(call: Call, username: str, limit: str) -> None:
    """Remove the limit LIMIT of USERNAME; `all` removes every limit."""
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    call.banner(f'Clearing {what} for user "{username}" ...')
    call.ask("clear_user_limits", user=username, limit=limit)
    call.done()


@node_command(USERS)
@click.option("--user", default="guest", help="The user whose limits are shown.  [default: guest]")
@click.option("--global", "is_global", is_flag=True, help="List the limits of all users that have any.")
def list_user_limits(call: Call, user: str, is_global: bool) -> None:
    """Show the limits of a user as JSON, or list those of all users."""
    if is_global:
        call.banner("Listing limits for all users ...")
        call.list(("user", "limits"), call.node.rows("list_user_limits"))
    else:
        call.banner(f'Listing limits for user "{user}" ...')
        call.document("limits", call.ask("list_user_limits", user=user))


# -- permissions ---

_PATTERNS = ("configure", "write", "read")


@node_command(ACCESS, 'Setting permissions for user "{username}" in vhost "{vhost}" ...')
@click.argument("username")
@click.argument("conf")
@click.argument("write")
@click.argument("read")
def set_permissions(call: Call, username: str, conf: str, write: str, read: str) -> None:
    """Set what USERNAME may do in a virtual host: CONF, WRITE and READ are regular expressions for names."""
    call.change("set_permissions", vhost=call.vhost, user=username, configure=conf, write=write, read=read)
    call.done()


@node_command(ACCESS, 'Clearing permissions for user "{username}" in vhost "{vhost}" ...')
@click.argument("username")
def clear_permissions(call: Call, username: str) -> None:
    """Remove all permissions of USERNAME in a virtual host."""
    call.change("clear_permissions", vhost=call.vhost, user=username)
    call.done()


@node_command(ACCESS, 'Listing permissions for vhost "{vhost}" ...', timeout=60.0)
def list_permissions(call: Call) -> None:
    """List the permissions of all users in a virtual host."""
    call.list(("user", *_PATTERNS), call.node.rows("list_permissions", vhost=call.vhost))


@node_command(ACCESS, 'Listing permissions for user "{username}" ...', timeout=60.0)
@click.argument("username")
def list_user_permissions(call: Call, username: str) -> None:
    """List the permissions of USERNAME in all virtual hosts."""
    call.list(("vhost", *_PATTERNS), call.node.rows("list_user_permissions", user=username))


@node_command(ACCESS, 'Setting topic permissions on "{exchange}" for user "{username}" in vhost "{vhost}" ...')
@click.argument("username")
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
def set_topic_permissions(call: Call, username: str, exchange: str, write: str, read: str) -> None:
    """Set which routing keys USERNAME may use with a topic EXCHANGE: WRITE and READ are regular expressions."""
    call.ask("set_topic_permissions", vhost=call.vhost, user=username, exchange=exchange, write=write, read=read)
    call.done()


@node_command(ACCESS)
@click.argument("username")
@click.argument("exchange", required=False)
def clear_topic_permissions(call: Call, username: str, exchange: str | None) -> None:
    """Remove the topic permissions of USERNAME in a virtual host: those for EXCHANGE, or all without EXCHANGE."""
    on = "" if exchange is None else f'on "{exchange}" '
    call.banner(f'Clearing topic permissions {on}for user "{username}" in vhost "{call.vhost}" ...')
    call.ask("clear_topic_permissions", vhost=call.vhost, user=username, exchange=exchange)
    call.done()


@node_command(ACCESS, 'Listing topic permissions for vhost "{vhost}" ...', timeout=60.0)
def list_topic_permissions(call: Call) -> None:
    """List the topic permissions of all users in a virtual host."""
    call.list(("user", "exchange", "write", "read"), call.node.rows("list_topic_permissions", vhost=call.vhost))


@node_command(ACCESS, 'Listing topic permissions for user "{username}" ...', timeout=60.0)
@click.argument("username")
def list_user_topic_permissions(call: Call, username: str) -> None:
    """List the topic permissions of USERNAME in all virtual hosts."""
    call.list(("vhost", "exchange", "write", "read"), call.node.rows("list_user_topic_permissions", user=username))


COMMANDS = (
    add_user,
    delete_user,
    change_password,
    clear_password,
    authenticate_user,
    set_user_tags,
    list_users,
    set_user_limits,
    clear_user_limits,
    list_user_limits,
    set_permissions,
    clear_permissions,
    list_permissions,
    list_user_permissions,
    set_topic_permissions,
    clear_topic_permissions,
    list_topic_permissions,
    list_user_topic_permissions,
)
