-- Rows as a program left them that knew objects and events, before there were checksums. Never edited.
INSERT INTO arrival (seq, namespace, at, source, kind, key, headers, body, body_of, jobs) VALUES (10, 1, 1800000001000, 'shop', 'order.paid', 'evt_7', NULL, '{"order":7}', NULL, 0);
INSERT INTO object (key, job, role, kept, doomed_at, length, sha256, content_type, filename, upload, downloads) VALUES ('default/00/checkpoint', 3, 1, 1, NULL, 5, X'0707070707070707070707070707070707070707070707070707070707070707', 'text/plain', NULL, NULL, 0);
INSERT INTO checkpoint (seq, schema_version, at, run, attempt, data, object) VALUES (3, 2, 1800000001000, 1, 1, '{"page":7}', NULL);
INSERT INTO section (job, name, at, body) VALUES (3, 'first', 1800000001000, '{"done":true}');
