"""The file with the shared secret, which several nodes of one machine use."""

import secrets

from warren.actors.control.proof import make_secret


def test_a_node_that_starts_while_another_one_writes_the_file_gets_the_same_secret(tmp_path, monkeypatch):
    path = str(tmp_path / "cookie")
    draw, others = secrets.token_urlsafe, []

    def draw_late(size):
        """Have another node start while this one has not written its secret yet."""
        monkeypatch.setattr(secrets, "token_urlsafe", draw)
        others.append(make_secret(path))
        return draw(size)

    monkeypatch.setattr(secrets, "token_urlsafe", draw_late)
    assert [make_secret(path)] == others
    assert [each.name for each in tmp_path.iterdir()] == ["cookie"]
