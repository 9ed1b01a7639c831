"""The commands for what operators set: users, permissions, policies, parameters, limits and virtual hosts."""
