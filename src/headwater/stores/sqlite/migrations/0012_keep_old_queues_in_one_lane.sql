-- Messages without a partition are spread over lanes from now on. Queues that are there already go on as they were,
-- with one, because somebody may count on their order.
UPDATE hw_queues SET options = json_set(options, '$.lanes', 1) WHERE json_valid(options);
