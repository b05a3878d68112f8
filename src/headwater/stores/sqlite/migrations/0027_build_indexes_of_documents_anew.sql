-- Keys of numbers below zero did not compare as the numbers do. They are made anew, and the indexes are used again once all are.
DELETE FROM hw_document_keys WHERE key >= x'0401' AND key < x'0402';
UPDATE hw_document_indexes SET ready = 0, done_collection = '', done_id = '';
