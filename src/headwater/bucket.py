"""A broker of your own over a store in a bucket: `pull_from_s3`, `batch_operations`, `flush_to_s3` (docs/bucket.md)."""

from headwater.stores.bucket.library import Broker, batch_operations, flush_to_s3, pull_from_s3

__all__ = ["Broker", "batch_operations", "flush_to_s3", "pull_from_s3"]
