"""What a role needs to use a store, and no more: the owner of the tables runs these lines once.

The owner makes the schema and brings the tables up to date; servers and workers can do with a role that cannot. Lines
for tables that later versions add are among them: they hold for what the owner makes from then on.
"""

from headwater.errors import InvalidOption
from headwater.stores.postgres.connection import quoted

_WRITES = "SELECT, INSERT, UPDATE, DELETE"
_READS = "SELECT"


def grants_for(role: str, database: str, schema: str, *, reads_only: bool) -> list[str]:
    """The lines that let a role use the store of a schema. Who only reads has no use for the digests of tokens."""
    if not role or role.lower() == "public":
        raise InvalidOption(f"name the role that is to use the store; got {role!r}")
    who, where = quoted(role), quoted(schema)
    tables, sequences = (_READS, _READS) if reads_only else (_WRITES, "USAGE, SELECT")
    return [
        f"GRANT CONNECT ON DATABASE {quoted(database)} TO {who};",
        f"GRANT USAGE ON SCHEMA {where} TO {who};",
        f"GRANT {tables} ON ALL TABLES IN SCHEMA {where} TO {who};",
        f"GRANT {sequences} ON ALL SEQUENCES IN SCHEMA {where} TO {who};",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {where} GRANT {tables} ON TABLES TO {who};",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {where} GRANT {sequences} ON SEQUENCES TO {who};",
        *([f"REVOKE ALL ON {where}.hw_access_tokens FROM {who};"] if reads_only else []),
    ]
