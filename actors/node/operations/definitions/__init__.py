"""Operations on what operators define: users, permissions, policies, virtual hosts, and documents of all of these."""
