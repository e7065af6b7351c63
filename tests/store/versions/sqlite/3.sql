-- facts: {"expected": ["acme 0", "acme 1", "acme 2", "acme 3", "acme 4", "acme 5", "globex 0", "globex 1", "globex 2", "an order", "another order", "paused", "delayed"], "set aside": ["heavy"], "lease": null, "block": "f5d6262cfe71e1e9c69d6adff131c481", "groups": ["grouped", "grouped"], "at": 1795400976986218}
-- senders: {"plain": ["BEGIN IMMEDIATE", "UPDATE mq_counter SET last = last + 1 RETURNING last", "INSERT INTO mq_mail (id, size, items, ring, more, origin, lengths, attributes, heap)\nVALUES (34, 12, 1, 1, 0, 'acme', x'', x'', x'73656e7420706c61696e6c79')", "COMMIT"], "keyed": ["BEGIN IMMEDIATE", "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000", "INSERT INTO mq_sent_key AS k (ring, key, digest, at) VALUES (1, 'key', x'83cc0c44fee675c7cfcb9e6e1d1ab168b504cceafc10aec1a1c337630537d2ed', 1795400976998000)\nON CONFLICT (ring, key) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= 1795400976998000 - 1000000000000", "UPDATE mq_counter SET last = last + 1 RETURNING last", "INSERT INTO mq_mail (id, size, items, ring, more, origin, lengths, attributes, heap)\nVALUES (35, 15, 1, 1, 0, 'acme', x'', x'', x'73656e7420776974682061206b6579')", "COMMIT"], "many": ["BEGIN IMMEDIATE", "UPDATE mq_counter SET last = last + 1 RETURNING last", "INSERT INTO mq_mail (id, size, items, ring, more, origin, lengths, attributes, heap)\nVALUES (36, 36, 2, 1, 0, 'acme', x'3d020000001200000000000000', x'', x'73656e742077697468206f7468657273203173656e742077697468206f74686572732032')", "COMMIT"]}
BEGIN TRANSACTION;
CREATE TABLE mq_aside (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    page INTEGER NOT NULL,
    item INTEGER NOT NULL,
    id BLOB NOT NULL,
    size INTEGER NOT NULL,
    weight BLOB,
    weight_limit BLOB,
    reason TEXT NOT NULL,
    block INTEGER,
    at INTEGER NOT NULL,
    PRIMARY KEY (ring, origin, page, item)
) STRICT;
INSERT INTO "mq_aside" VALUES(1,'initech',0,0,X'E4968A0BD7B29B0D3B48D5E2E15F17677F313315B20E172B24300B42807AE79B',5,X'000000E8D4A510000000000000000001',X'00000000000927C00000000040000000','overweight',3,1795400976579000);
CREATE TABLE mq_block (
    id INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    key TEXT,
    token BLOB NOT NULL UNIQUE,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
    by_hand INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL,
    deadline INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    ended_at INTEGER,
    details TEXT NOT NULL,
    CHECK ((state = 0) = (ended_at IS NULL))
) STRICT;
INSERT INTO "mq_block" VALUES(3,1,'settled block',X'E96904DCF2D4188401116C1AEC81DDC8',1,0,1000000.0,1796400976476000,1795400976476000,1795400976579000,'{"limit":[600000,1073741824],"planned":[1,9],"overhead":[0,0],"messages":1,"order":"deficit","by":"root","result":{"weight":[1,9],"processed":1,"failed":0,"set_aside":1,"went_back":0,"expired":0,"origins":2}}');
INSERT INTO "mq_block" VALUES(19,1,'block in flight',X'F5D6262CFE71E1E9C69D6ADFF131C481',0,0,1000000.0,1796400976748000,1795400976748000,NULL,'{"limit":[600000,1073741824],"planned":[10,68],"overhead":[0,0],"messages":10,"order":"deficit","by":"root"}');
INSERT INTO "mq_block" VALUES(28,2,'settled block',X'D0AEC11D5519D274AC6A445F774A0AC0',1,0,900.0,1795401876875000,1795400976875000,1795400976908000,'{"limit":[600000,1073741824],"planned":[1,9],"overhead":[0,0],"messages":1,"order":"deficit","by":"root","result":{"weight":[1,9],"processed":1,"failed":0,"set_aside":0,"went_back":0,"expired":0,"origins":1}}');
CREATE TABLE mq_book (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    begin_page INTEGER NOT NULL DEFAULT 0,
    end_page INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0 CHECK (pages >= 0),
    messages INTEGER NOT NULL DEFAULT 0 CHECK (messages >= 0),
    size INTEGER NOT NULL DEFAULT 0 CHECK (size >= 0),
    -- The ring's order is the order of tickets; the head has the smallest.
    ticket INTEGER,
    deficit INTEGER NOT NULL DEFAULT 0,
    -- Mail below the floor is in pages; so is the mail named by `ahead`, at or above it.
    floor INTEGER NOT NULL DEFAULT 0,
    ahead BLOB NOT NULL DEFAULT x'',
    wake_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin),
    CHECK (begin_page <= end_page),
    CHECK ((ticket IS NOT NULL) = (end_page > begin_page))
) STRICT;
INSERT INTO "mq_book" VALUES(1,'acme',1,2,1,7,44,20,0,19,X'',0);
INSERT INTO "mq_book" VALUES(1,'initech',1,1,1,1,5,NULL,0,7,X'',0);
INSERT INTO "mq_book" VALUES(1,'globex',0,1,1,3,24,21,0,19,X'',0);
INSERT INTO "mq_book" VALUES(2,'a/b',1,1,0,0,0,NULL,-1790,31,X'',0);
CREATE TABLE mq_branch (
    ring INTEGER NOT NULL,
    -- Ends in a slash, but for the outermost group, which has the empty path.
    path TEXT NOT NULL,
    deficit INTEGER NOT NULL,
    level INTEGER NOT NULL,
    -- Of the outermost group: who comes first in the next block.
    owed TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (ring, path)
) STRICT;
INSERT INTO "mq_branch" VALUES(2,'',0,-1790,'{"first":[]}');
INSERT INTO "mq_branch" VALUES(2,'a/',-1790,-1790,'');
CREATE TABLE mq_claim (
    block INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    by_hand INTEGER NOT NULL DEFAULT 0,
    data BLOB NOT NULL,
    PRIMARY KEY (block, seq)
) STRICT;
INSERT INTO "mq_claim" VALUES(19,0,1,'acme',0,X'7B22706C616E6E6564223A5B372C34345D2C2272756E73223A5B7B2270616765223A312C226669727374223A302C22636F756E74223A372C22636C6F736564223A747275657D5D7D');
INSERT INTO "mq_claim" VALUES(19,1,1,'globex',0,X'7B22706C616E6E6564223A5B332C32345D2C2272756E73223A5B7B2270616765223A302C226669727374223A302C22636F756E74223A332C22636C6F736564223A747275657D5D7D');
CREATE TABLE mq_counter (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO "mq_counter" VALUES(1,33);
CREATE TABLE mq_delayed (
    id INTEGER PRIMARY KEY,
    due INTEGER NOT NULL,
    size INTEGER NOT NULL,
    items INTEGER NOT NULL,
    ring INTEGER NOT NULL,
    more INTEGER NOT NULL DEFAULT 0,
    origin TEXT NOT NULL,
    lengths BLOB NOT NULL DEFAULT x'',
    attributes BLOB NOT NULL DEFAULT x'',
    heap BLOB NOT NULL
) STRICT;
INSERT INTO "mq_delayed" VALUES(26,1795404576790000,7,1,1,0,'globex',X'',X'',X'64656C61796564');
CREATE TABLE mq_event (
    id INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    block INTEGER,
    at INTEGER NOT NULL,
    events INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
INSERT INTO "mq_event" VALUES(7,1,'acme',3,1795400976579000,1,X'010000000000000000000000000100000003000000006DD20A05F343532C260276D942748C58A353CBE520D807A44691FB91CBE9F1433D0100000001000000000000003D010000000900000000000000');
INSERT INTO "mq_event" VALUES(8,1,'initech',3,1795400976579000,1,X'07000000000000000000000000010000000100000000E4968A0BD7B29B0D3B48D5E2E15F17677F313315B20E172B24300B42807AE79B');
INSERT INTO "mq_event" VALUES(31,2,'a/b',28,1795400976908000,1,X'010000000000000000000000000100000003000000006DD20A05F343532C260276D942748C58A353CBE520D807A44691FB91CBE9F1433D0100000001000000000000003D010000000900000000000000');
CREATE TABLE mq_ledger (
    block INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
INSERT INTO "mq_ledger" VALUES(3,1,1795400976476000,X'78018B8E564A4CCE4D55D231343734B7B430B334B430D18936D4B18CD531D431D0514ACD2D28C94C4D01CAC7EA442B65E66596A42667A0A936D0318805AA45551D0B003934180E');
INSERT INTO "mq_ledger" VALUES(19,1,1795400976748000,X'78015DCA3D0E80200C06D0BB74FE060B94C2591A067F1A6322D1C1C1E3CBECF8926746F3DA9D202CB1E64945024C915283620279BF9FC337023718EDE7B5F83BA0ACB5E4CA25C122C2D8F1B7DB0744461815');
INSERT INTO "mq_ledger" VALUES(28,2,1795400976875000,X'78018B8E564AD44F52D23134B0B4343534343332373737D38936D4B18CD531D431D0514ACD2D28C94C4D01AA888D0500F7890B68');
CREATE TABLE mq_mail (
    id INTEGER PRIMARY KEY,
    sent_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    size INTEGER NOT NULL,
    items INTEGER NOT NULL DEFAULT 1,
    ring INTEGER NOT NULL,
    more INTEGER NOT NULL DEFAULT 0,
    origin TEXT NOT NULL,
    lengths BLOB NOT NULL DEFAULT x'',
    attributes BLOB NOT NULL DEFAULT x'',
    heap BLOB NOT NULL
) STRICT;
INSERT INTO "mq_mail" VALUES(2,1795400976458000,5,1,1,0,'initech',X'',X'7B2265616368223A7B2230223A7B22776569676874223A5B313030303030303030303030302C315D7D7D7D',X'6865617679');
INSERT INTO "mq_mail" VALUES(9,1795400976625000,8,1,1,0,'acme',X'',X'',X'7265706F72746564');
INSERT INTO "mq_mail" VALUES(10,1795400976634000,6,1,1,0,'acme',X'',X'',X'61636D652030');
INSERT INTO "mq_mail" VALUES(11,1795400976645000,6,1,1,0,'acme',X'',X'',X'61636D652031');
INSERT INTO "mq_mail" VALUES(12,1795400976656000,6,1,1,0,'acme',X'',X'',X'61636D652032');
INSERT INTO "mq_mail" VALUES(13,1795400976675000,6,1,1,0,'acme',X'',X'',X'61636D652033');
INSERT INTO "mq_mail" VALUES(14,1795400976685000,6,1,1,0,'acme',X'',X'',X'61636D652034');
INSERT INTO "mq_mail" VALUES(15,1795400976693000,6,1,1,0,'acme',X'',X'',X'61636D652035');
INSERT INTO "mq_mail" VALUES(16,1795400976723000,8,1,1,0,'globex',X'',X'',X'676C6F6265782030');
INSERT INTO "mq_mail" VALUES(17,1795400976732000,8,1,1,0,'globex',X'',X'',X'676C6F6265782031');
INSERT INTO "mq_mail" VALUES(18,1795400976744000,8,1,1,0,'globex',X'',X'',X'676C6F6265782032');
INSERT INTO "mq_mail" VALUES(23,1795400976787000,8,1,1,0,'initech',X'',X'',X'616E206F72646572');
INSERT INTO "mq_mail" VALUES(24,1795400976788000,13,1,1,0,'initech',X'',X'',X'616E6F74686572206F72646572');
INSERT INTO "mq_mail" VALUES(25,1795400976789000,6,1,1,0,'hooli',X'',X'',X'706175736564');
INSERT INTO "mq_mail" VALUES(32,1795400976951000,7,1,2,0,'a/b',X'',X'',X'67726F75706564');
INSERT INTO "mq_mail" VALUES(33,1795400976953000,7,1,2,0,'a/c',X'',X'',X'67726F75706564');
CREATE TABLE mq_measure (
    ring INTEGER NOT NULL,
    processor TEXT NOT NULL,
    origin TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (ring, processor, origin)
) STRICT;
CREATE TABLE mq_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;
INSERT INTO "mq_migration" VALUES(1,'0001_initial','2b10fa8253eaac9b5b00db83847a7adeb6276cbc9c5cea46432a0a86057bc2e9');
INSERT INTO "mq_migration" VALUES(3,'0003_paths','cfb011c8b923c93e2d9e544d98d3e0224da89c59aa94d40b5b1c27b18adf7c8d');
CREATE TABLE mq_outcome (
    id INTEGER PRIMARY KEY,
    block INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
INSERT INTO "mq_outcome" VALUES(22,19,X'5B5B2261636D65222C312C302C302C22646F6E65225D5D');
CREATE TABLE mq_page (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    page INTEGER NOT NULL,
    items INTEGER NOT NULL CHECK (items > 0),
    used INTEGER NOT NULL,
    first_index INTEGER NOT NULL,
    remaining INTEGER NOT NULL CHECK (remaining > 0),
    remaining_size INTEGER NOT NULL,
    -- Messages that wait for a person.
    kept INTEGER NOT NULL DEFAULT 0,
    first_mail INTEGER NOT NULL,
    last_mail INTEGER NOT NULL,
    slices BLOB NOT NULL,
    lengths BLOB NOT NULL,
    marks BLOB NOT NULL DEFAULT x'',
    notes BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (ring, origin, page),
    CHECK (first_index BETWEEN 0 AND items)
) STRICT;
INSERT INTO "mq_page" VALUES(1,'initech',0,1,10,1,1,5,1,2,2,X'3D0100000002000000000000003D0000000000000000000000003D0100000000000000000000003D010000000100000000000000',X'3D010000000500000000000000',X'02',X'7B2230223A5B5B313030303030303030303030302C315D2C302C6E756C6C5D7D');
INSERT INTO "mq_page" VALUES(1,'acme',1,7,79,0,7,44,0,9,15,X'3D0100000009000000000000003D0600000001000000000000003D0700000000000000000000003D070000000100000000000000',X'4207000000000000000000000008060606060606',X'',X'');
INSERT INTO "mq_page" VALUES(1,'globex',0,3,39,0,3,24,0,16,18,X'3D0100000010000000000000003D0200000001000000000000003D0300000000000000000000003D030000000100000000000000',X'3D030000000800000000000000',X'',X'');
CREATE TABLE mq_pause (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    who TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    until INTEGER, below INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin)
) STRICT;
INSERT INTO "mq_pause" VALUES(1,'hooli','audit','root',1795400976612000,NULL,0);
INSERT INTO "mq_pause" VALUES(2,'a','holidays','root',1795400976956000,NULL,1);
CREATE TABLE mq_ring (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
) STRICT;
INSERT INTO "mq_ring" VALUES(1,'default','{"heap_size":65536,"max_stale":256,"costs":{},"service_weight":[600000,1073741824],"order":"deficit","rounds_per_block":64,"paths":false,"ordered":true,"lease":1000000.0,"max_attempts":3,"backoff":0.0,"backoff_most":3600.0,"weigher":{"base":[1,0],"per_byte":[0,1000]},"key_window":1000000.0,"keep_events":604800.0,"keep_ledger":2592000.0}',1795400976300000);
INSERT INTO "mq_ring" VALUES(2,'groups','{"heap_size":65536,"max_stale":256,"costs":{},"service_weight":[600000,1073741824],"order":"deficit","rounds_per_block":256,"paths":true,"ordered":true,"lease":900.0,"max_attempts":null,"backoff":0.0,"backoff_most":3600.0,"weigher":{"base":[1,0],"per_byte":[0,1000]},"key_window":86400.0,"keep_events":604800.0,"keep_ledger":2592000.0}',1795400976830000);
CREATE TABLE mq_sent_key (
    ring INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (ring, key)
) STRICT;
INSERT INTO "mq_sent_key" VALUES(1,'heavy',X'D99437ABA8F735F36F688EC8DC41B11DFB2EE95C9256BAE32C75E7B9F26A37F4',1795400976458000);
INSERT INTO "mq_sent_key" VALUES(1,'order-1',X'98FC1A042B279EADE98BCCCAA04641FA677FE4DDC1B5371285B363EEB7CC79FA',1795400976787000);
INSERT INTO "mq_sent_key" VALUES(1,'order-2',X'8976D1D4906AA3B7D6E2D95FCE64596299E78B7541FAE6BCB32BCDEC2D09D094',1795400976788000);
CREATE TABLE mq_standing (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    settings TEXT NOT NULL,
    guaranteed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin)
) STRICT;
INSERT INTO "mq_standing" VALUES(1,'acme','{"share":3}',0);
CREATE TABLE mq_state (
    ring INTEGER PRIMARY KEY REFERENCES mq_ring (id) ON DELETE CASCADE,
    version INTEGER NOT NULL DEFAULT 0,
    -- No ready book has a smaller ticket; no mail with a smaller id is unknown to the ring.
    ticket_floor INTEGER NOT NULL DEFAULT 0,
    look_floor INTEGER NOT NULL DEFAULT 0,
    lease_token BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    lease_holder TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "mq_state" VALUES(1,4,20,19,NULL,0,'');
INSERT INTO "mq_state" VALUES(2,2,29,28,NULL,0,'');
CREATE UNIQUE INDEX mq_mail_by_origin ON mq_mail (ring, origin, id);
CREATE INDEX mq_delayed_by_due ON mq_delayed (ring, due, id);
CREATE INDEX mq_book_by_ticket ON mq_book (ring, ticket) WHERE ticket IS NOT NULL;
CREATE INDEX mq_page_with_kept ON mq_page (ring, origin, page) WHERE kept > 0;
CREATE INDEX mq_aside_by_time ON mq_aside (ring, at);
CREATE INDEX mq_standing_with_least ON mq_standing (ring, origin) WHERE guaranteed;
CREATE UNIQUE INDEX mq_block_live_key ON mq_block (ring, key) WHERE state = 0;
CREATE INDEX mq_block_live ON mq_block (ring, deadline) WHERE state = 0;
CREATE INDEX mq_block_ended ON mq_block (ring, ended_at) WHERE state <> 0;
CREATE INDEX mq_claim_by_origin ON mq_claim (ring, origin);
CREATE INDEX mq_outcome_by_block ON mq_outcome (block, id);
CREATE INDEX mq_event_by_origin ON mq_event (ring, origin, id);
CREATE INDEX mq_event_by_time ON mq_event (ring, at);
CREATE INDEX mq_ledger_by_time ON mq_ledger (ring, at);
CREATE INDEX mq_sent_key_by_time ON mq_sent_key (ring, at);
CREATE INDEX mq_pause_of_groups ON mq_pause (ring) WHERE below;
COMMIT;
