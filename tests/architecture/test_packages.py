"""setup.cfg lists every folder of the package, because a folder that it lacks would be missing in the wheel."""

import configparser


def test_setup_cfg_lists_every_folder(layers, root):
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    folders = {path.parent.relative_to(root) for path in layers.sources(root)}
    names = {".".join(("warren", *folder.parts)) for folder in folders}
    # Spark looks for a top-level module of this name.
    expected = names - {"warren.spark.pyspark_warren"} | {"pyspark_warren"}
    assert set(config["options"]["packages"].split()) == expected
