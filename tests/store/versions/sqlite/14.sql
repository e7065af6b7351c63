-- facts: {"expected": ["acme 0", "acme 1", "acme 2", "acme 3", "acme 4", "acme 5", "globex 0", "globex 1", "globex 2", "an order", "another order", "paused", "handed on", "leased", "delayed", "high"], "set aside": ["heavy"], "lease": "default/518b4206446f4157bba69fb651fecb3b/umbrella:0:1", "block": "494eddb1ac9bfe12f326ee8515be95c2", "large": "largelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelargelarge", "groups": ["grouped", "grouped"], "at": 1795677351525967}
-- senders: {"plain": ["BEGIN IMMEDIATE", "UPDATE mq_counter SET last = last + 1 RETURNING last", "INSERT INTO mq_mail (id, size, items, ring, more, origin, lengths, attributes, heap)\nVALUES (48, 12, 1, 1, 0, 'acme', x'', x'', x'73656e7420706c61696e6c79')", "COMMIT"], "keyed": ["BEGIN IMMEDIATE", "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000", "INSERT INTO mq_sent_key AS k (ring, key, origin, digest, at)\nSELECT 1, 'key', 'acme', x'01ba0a96baa24a743883dbc6c6b0625734a2e1c1058497e4cd7bf3946c98b0aa54', 1795677351531000\nWHERE NOT EXISTS (\n    SELECT 1 FROM mq_sent_key o WHERE o.ring = 1 AND o.key = 'key' AND o.origin = ''\n        AND o.digest = x'83cc0c44fee675c7cfcb9e6e1d1ab168b504cceafc10aec1a1c337630537d2ed' AND o.at > 1795677351531000 - 1000000000000\n)\nON CONFLICT (ring, key, origin) DO UPDATE SET digest = excluded.digest, at = excluded.at WHERE k.at <= 1795677351531000 - 1000000000000", "UPDATE mq_counter SET last = last + 1 RETURNING last", "INSERT INTO mq_mail (id, size, items, ring, more, origin, lengths, attributes, heap)\nVALUES (49, 15, 1, 1, 0, 'acme', x'', x'', x'73656e7420776974682061206b6579')", "COMMIT"], "many": ["BEGIN IMMEDIATE", "UPDATE mq_counter SET last = last + 1 RETURNING last", "INSERT INTO mq_mail (id, size, items, ring, more, origin, lengths, attributes, heap)\nVALUES (50, 36, 2, 1, 0, 'acme', x'3d020000001200000000000000', x'', x'73656e742077697468206f7468657273203173656e742077697468206f74686572732032')", "COMMIT"]}
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
    at INTEGER NOT NULL, arrived_at INTEGER NOT NULL DEFAULT 0, arrived_block INTEGER,
    PRIMARY KEY (ring, origin, page, item)
) STRICT;
INSERT INTO "mq_aside" VALUES(1,'initech',0,0,X'E4968A0BD7B29B0D3B48D5E2E15F17677F313315B20E172B24300B42807AE79B',5,X'000000E8D4A510000000000000000001',X'00000000000927C00000000040000000','overweight',1,1795677351482000,1795677351475000,1);
CREATE TABLE mq_blob (
    hash TEXT PRIMARY KEY,
    size INTEGER NOT NULL CHECK (size > 0),
    upload INTEGER NOT NULL UNIQUE REFERENCES mq_upload (id),
    at INTEGER NOT NULL
) STRICT;
INSERT INTO "mq_blob" VALUES('4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e',100,38,1795677351508000);
CREATE TABLE mq_blob_use (
    mail INTEGER NOT NULL,
    place INTEGER NOT NULL,
    hash TEXT NOT NULL REFERENCES mq_blob (hash),
    until INTEGER,
    PRIMARY KEY (mail, place)
) STRICT;
INSERT INTO "mq_blob_use" VALUES(40,0,'4d511099becc08058bae76e361a2639e3b0baf3788220a8a59b1bfc51d96657e',NULL);
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
    details TEXT NOT NULL, number INTEGER NOT NULL DEFAULT 0,
    CHECK ((state = 0) = (ended_at IS NULL))
) STRICT;
INSERT INTO "mq_block" VALUES(3,1,'settled block',X'9DF8FEA7BBEB49A2778F89BC28658CB0',1,0,1000000.0,1796677351476000,1795677351476000,1795677351482000,'{"order":"deficit","server":{"name":"root","dag":false,"limit":null},"limit":[600000,1073741824],"planned":[1,9],"overhead":[0,0],"messages":1,"by":"root","result":{"weight":[1,9],"processed":1,"failed":0,"set_aside":1,"went_back":0,"expired":0,"origins":2}}',1);
INSERT INTO "mq_block" VALUES(11,1,NULL,X'21EB786CA6A34627BA1A97F407AD777A',2,0,1000000.0,0,1795677351487000,1795677351490000,'{"order":"view","limit":[1,9],"planned":[1,9],"overhead":[0,0],"messages":1,"by":"root","result":{"weight":[1,9],"processed":1,"failed":0,"set_aside":0,"went_back":0,"expired":0,"origins":1}}',2);
INSERT INTO "mq_block" VALUES(15,1,NULL,X'518B4206446F4157BBA69FB651FECB3B',0,0,1000000.0,1796677351492000,1795677351492000,NULL,'{"order":"view","limit":[1,6],"planned":[1,6],"overhead":[0,0],"messages":1,"by":"root"}',3);
INSERT INTO "mq_block" VALUES(26,1,'block in flight',X'494EDDB1AC9BFE12F326EE8515BE95C2',0,0,1000000.0,1796677351500000,1795677351500000,NULL,'{"order":"deficit","server":{"name":"root","dag":false,"limit":null},"limit":[600000,1073741824],"planned":[11,77],"overhead":[0,0],"messages":11,"by":"root"}',4);
INSERT INTO "mq_block" VALUES(42,2,'settled block',X'038CDA56228D13BDAEBE7C646EC462AB',1,0,900.0,1795678251516000,1795677351516000,1795677351521000,'{"order":"deficit","server":{"name":"root","dag":false,"limit":null},"limit":[600000,1073741824],"planned":[1,9],"overhead":[0,0],"messages":1,"by":"root","result":{"weight":[1,9],"processed":1,"failed":0,"set_aside":0,"went_back":0,"expired":0,"origins":1}}',1);
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
INSERT INTO "mq_book" VALUES(1,'acme',1,2,1,7,44,29,0,26,X'',0);
INSERT INTO "mq_book" VALUES(1,'initech',1,1,1,1,5,NULL,0,7,X'',0);
INSERT INTO "mq_book" VALUES(1,'umbrella',0,1,1,1,6,27,0,14,X'',0);
INSERT INTO "mq_book" VALUES(1,'wayne',0,1,1,1,9,28,0,26,X'',0);
INSERT INTO "mq_book" VALUES(1,'globex',0,1,1,3,24,30,0,26,X'',0);
INSERT INTO "mq_book" VALUES(2,'a/b',1,1,0,0,0,NULL,-1790,45,X'',0);
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
CREATE TABLE mq_chunk (
    upload INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (upload, seq)
) STRICT;
INSERT INTO "mq_chunk" VALUES(38,0,X'6C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C617267656C61726765');
CREATE TABLE mq_claim (
    block INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    by_hand INTEGER NOT NULL DEFAULT 0,
    data BLOB NOT NULL,
    PRIMARY KEY (block, seq)
) STRICT;
INSERT INTO "mq_claim" VALUES(15,0,1,'umbrella',0,X'7B22706C616E6E6564223A5B312C365D2C226F726465726564223A747275652C2272756E73223A5B7B2270616765223A302C226669727374223A312C22636F756E74223A312C22636C6F736564223A747275657D5D7D');
INSERT INTO "mq_claim" VALUES(26,0,1,'wayne',0,X'7B22706C616E6E6564223A5B312C395D2C226F726465726564223A747275652C2272756E73223A5B7B2270616765223A302C226669727374223A302C22636F756E74223A312C22636C6F736564223A747275657D5D7D');
INSERT INTO "mq_claim" VALUES(26,1,1,'acme',0,X'7B22706C616E6E6564223A5B372C34345D2C226F726465726564223A747275652C2272756E73223A5B7B2270616765223A312C226669727374223A302C22636F756E74223A372C22636C6F736564223A747275657D5D7D');
INSERT INTO "mq_claim" VALUES(26,2,1,'globex',0,X'7B22706C616E6E6564223A5B332C32345D2C226F726465726564223A747275652C2272756E73223A5B7B2270616765223A302C226669727374223A302C22636F756E74223A332C22636C6F736564223A747275657D5D7D');
CREATE TABLE mq_counter (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO "mq_counter" VALUES(1,47);
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
INSERT INTO "mq_delayed" VALUES(35,1795680951506000,7,1,1,0,'globex',X'',X'',X'64656C61796564');
CREATE TABLE mq_event (
    id INTEGER PRIMARY KEY,
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    block INTEGER,
    at INTEGER NOT NULL,
    events INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
INSERT INTO "mq_event" VALUES(7,1,'acme',1,1795677351482000,1,X'010000000000000000000000000100000003000000006DD20A05F343532C260276D942748C58A353CBE520D807A44691FB91CBE9F1433D0100000001000000000000003D010000000900000000000000');
INSERT INTO "mq_event" VALUES(8,1,'initech',1,1795677351482000,1,X'0700000000000000000000000001000000018000000069742077656967687320312C3030302C3030302C3030302C3030302F312C206D6F7265207468616E20746865203630302C3030302F312C3037332C3734312C3832342074686174206120626C6F636B2063616E2063617272793B2073656E7420323032362D31312D32365430373A31353A35312E3437353030302B30303A3030E4968A0BD7B29B0D3B48D5E2E15F17677F313315B20E172B24300B42807AE79B');
INSERT INTO "mq_event" VALUES(14,1,'umbrella',2,1795677351490000,1,X'100000000000000000000000000100000001050000007761796E65177A911F4585D3020D4EE979115141D39447443DF2310EB98A6D483B272305A7');
INSERT INTO "mq_event" VALUES(45,2,'a/b',1,1795677351521000,1,X'010000000000000000000000000100000003000000006DD20A05F343532C260276D942748C58A353CBE520D807A44691FB91CBE9F1433D0100000001000000000000003D010000000900000000000000');
CREATE TABLE "mq_ledger" (
    ring INTEGER NOT NULL,
    block INTEGER NOT NULL,
    id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ring, block)
) STRICT;
INSERT INTO "mq_ledger" VALUES(1,1,3,1795677351476000,X'780105C1C10900210C00C15EF66D05E9266014212A44BD8FD8FBCD5C96C567815C86764388393789AC1529EACB12DE7ADBC838EEEFFDBFB6119278018B8E564A4CCE4D55D231343734B7B430B334B430D18936D4B18CD531D431D0514ACD2D28C94C4D01CAC7EA442B65E66596A42667A0A936D0318805AA45551D0B003934180E');
INSERT INTO "mq_ledger" VALUES(1,4,26,1795677351500000,X'780105C1C10900210C00C15EF66D05E9266014212A44BD8FD8FBCD5C96C567815C86764388393789AC1529EACB12DE7ADBC838EEEFFDBFB61192780165CCC10EC2201084E157319CE7C016E89667D970A0BA5612A8C6D4A86F2F269EEA69FEC39711318F36DFB5D66C60211636F5B530653D9C6B592E9B01258879E6F7AABD99384E63A4C943083181BE5ADB6D2B7AFAD97C6C9D060A2E8E964318200CEF13F8DF2EF53AEB6B77EC3074ED763A7D0052942F04');
INSERT INTO "mq_ledger" VALUES(2,1,42,1795677351516000,X'780105C1C10900210C00C15EF66D05E9266014212A44BD8FD8FBCD5C96C567815C86764388393789AC1529EACB12DE7ADBC838EEEFFDBFB6119278018B8E564AD44F52D231B33037B4343137333736D38936D4B18CD531D431D0514ACD2D28C94C4D51D2318C8D0500E6020B0B');
CREATE TABLE mq_loan (
    -- The mail that borrows.
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    mail INTEGER NOT NULL,
    -- The mail that has the bytes, and where they begin in its heap.
    lender_ring INTEGER NOT NULL,
    lender_origin TEXT NOT NULL,
    lender_mail INTEGER NOT NULL,
    start INTEGER NOT NULL,
    -- Whether no page of the lender needs the mail any more: it goes with its last loan.
    let_go INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin, mail)
) STRICT;
INSERT INTO "mq_loan" VALUES(1,'wayne',13,1,'umbrella',9,0,0);
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
INSERT INTO "mq_mail" VALUES(2,1795677351475000,5,1,1,0,'initech',X'',X'7B22616C6C223A7B22776569676874223A5B313030303030303030303030302C315D7D7D',X'6865617679');
INSERT INTO "mq_mail" VALUES(9,1795677351486000,9,1,1,0,'umbrella',X'',X'',X'68616E646564206F6E');
INSERT INTO "mq_mail" VALUES(10,1795677351486000,6,1,1,0,'umbrella',X'',X'',X'6C6561736564');
INSERT INTO "mq_mail" VALUES(13,1795677351489000,9,1,1,0,'wayne',X'',X'7B22616C6C223A7B226C6F616E223A747275657D7D',X'');
INSERT INTO "mq_mail" VALUES(16,1795677351494000,8,1,1,0,'acme',X'',X'',X'7265706F72746564');
INSERT INTO "mq_mail" VALUES(17,1795677351495000,6,1,1,0,'acme',X'',X'',X'61636D652030');
INSERT INTO "mq_mail" VALUES(18,1795677351495000,6,1,1,0,'acme',X'',X'',X'61636D652031');
INSERT INTO "mq_mail" VALUES(19,1795677351497000,6,1,1,0,'acme',X'',X'',X'61636D652032');
INSERT INTO "mq_mail" VALUES(20,1795677351497000,6,1,1,0,'acme',X'',X'',X'61636D652033');
INSERT INTO "mq_mail" VALUES(21,1795677351497000,6,1,1,0,'acme',X'',X'',X'61636D652034');
INSERT INTO "mq_mail" VALUES(22,1795677351498000,6,1,1,0,'acme',X'',X'',X'61636D652035');
INSERT INTO "mq_mail" VALUES(23,1795677351498000,8,1,1,0,'globex',X'',X'',X'676C6F6265782030');
INSERT INTO "mq_mail" VALUES(24,1795677351499000,8,1,1,0,'globex',X'',X'',X'676C6F6265782031');
INSERT INTO "mq_mail" VALUES(25,1795677351499000,8,1,1,0,'globex',X'',X'',X'676C6F6265782032');
INSERT INTO "mq_mail" VALUES(32,1795677351504000,8,1,1,0,'initech',X'',X'',X'616E206F72646572');
INSERT INTO "mq_mail" VALUES(33,1795677351505000,13,1,1,0,'initech',X'',X'',X'616E6F74686572206F72646572');
INSERT INTO "mq_mail" VALUES(34,1795677351505000,6,1,1,0,'hooli',X'',X'',X'706175736564');
INSERT INTO "mq_mail" VALUES(36,1795677351507000,4,1,1,0,'globex',X'',X'',X'68696768');
INSERT INTO "mq_mail" VALUES(40,1795677351509000,48,1,1,0,'globex',X'',X'7B22626C6F6273223A7B2230223A22346435313130393962656363303830353862616537366533363161323633396533623062616633373838323230613861353962316266633531643936363537653A313030227D7D',X'936D71626C6F620A4D511099BECC08058BAE76E361A2639E3B0BAF3788220A8A59B1BFC51D96657E0000000000000064');
INSERT INTO "mq_mail" VALUES(46,1795677351523000,7,1,2,0,'a/b',X'',X'',X'67726F75706564');
INSERT INTO "mq_mail" VALUES(47,1795677351524000,7,1,2,0,'a/c',X'',X'',X'67726F75706564');
CREATE TABLE mq_measure (
    ring INTEGER NOT NULL,
    processor TEXT NOT NULL,
    origin TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (ring, processor, origin)
) STRICT;
CREATE TABLE mq_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;
INSERT INTO "mq_migration" VALUES(1,'0001_initial','2b10fa8253eaac9b5b00db83847a7adeb6276cbc9c5cea46432a0a86057bc2e9');
INSERT INTO "mq_migration" VALUES(2,'0002_blobs','c52902815f1b755ddb615a007705c912123840feb3fd1ccfa317c58c8675c9b5');
INSERT INTO "mq_migration" VALUES(3,'0003_paths','cfb011c8b923c93e2d9e544d98d3e0224da89c59aa94d40b5b1c27b18adf7c8d');
INSERT INTO "mq_migration" VALUES(4,'0004_set_aside','b66ba0dc6137bf61c2f6bf47bcdc7dc39fe1ef71a6b8cd1c9cb05022b06c3e57');
INSERT INTO "mq_migration" VALUES(5,'0005_loans','4d302dccd663adf9bc6a060ecade08d243df28564b9b24afbe628270e6b52f50');
INSERT INTO "mq_migration" VALUES(6,'0006_search_path','15afb0498c23e2f7a4205dd3ae66ad8bf03be4b656585c7ea3e9ddf9c5905810');
INSERT INTO "mq_migration" VALUES(7,'0007_keys_by_origin','0cc451fc7ee6dadbc0a30db2860006cba0710ea7e63a1583c9e46621f406eee6');
INSERT INTO "mq_migration" VALUES(8,'0008_block_numbers','23c8394d2ef53b19aa9897f64026a12d84d5638b417ab45e3d9b00f455ea0e82');
INSERT INTO "mq_migration" VALUES(9,'0009_sending','86341c53d1463fa8247adb4cb7e58179f462a2328f1f684f2eb7cc7d0878111b');
INSERT INTO "mq_migration" VALUES(10,'0010_shards','e24f2305f07dd727bfeadbcd628cc375752b635a7cc9e6994dbed4f4837aadf8');
INSERT INTO "mq_migration" VALUES(11,'0011_ages','5b135074cef0a037f2b324e2b4d7517e6e49ed95debdcafdd75d4c5837818932');
INSERT INTO "mq_migration" VALUES(12,'0012_refers','068bb5a4115f8e2ae0e00532672bf7a65e5622e3aaa794d8a00b6f859e7dbcd9');
INSERT INTO "mq_migration" VALUES(13,'0013_lease_wanted','f3e36e1d8ef07bf14ae9322a83fd0b62fff6762cc53fd80ec7d60e00afb00112');
INSERT INTO "mq_migration" VALUES(14,'0014_order_of_keys','f2fc6f999e7d95d8621aafd4cf9eafa7981c54cffafe15d5930b37addaad1918');
CREATE TABLE mq_outcome (
    id INTEGER PRIMARY KEY,
    block INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
INSERT INTO "mq_outcome" VALUES(31,26,X'5B5B2261636D65222C312C302C302C22646F6E65225D5D');
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
INSERT INTO "mq_page" VALUES(1,'umbrella',0,2,25,1,1,6,0,9,10,X'3D0100000009000000000000003D0100000001000000000000003D0200000000000000000000003D020000000100000000000000',X'420200000000000000000000000906',X'',X'7B2230223A5B6E756C6C2C302C6E756C6C2C6E756C6C2C6E756C6C2C747275655D7D');
INSERT INTO "mq_page" VALUES(1,'wayne',0,1,14,0,1,9,0,13,13,X'3D010000000D000000000000003D0000000000000000000000003D0100000000000000000000003D010000000100000000000000',X'3D010000000900000000000000',X'',X'7B2230223A5B6E756C6C2C302C6E756C6C2C6E756C6C2C6E756C6C2C747275655D7D');
INSERT INTO "mq_page" VALUES(1,'acme',1,7,79,0,7,44,0,16,22,X'3D0100000010000000000000003D0600000001000000000000003D0700000000000000000000003D070000000100000000000000',X'4207000000000000000000000008060606060606',X'',X'');
INSERT INTO "mq_page" VALUES(1,'globex',0,3,39,0,3,24,0,23,25,X'3D0100000017000000000000003D0200000001000000000000003D0300000000000000000000003D030000000100000000000000',X'3D030000000800000000000000',X'',X'');
CREATE TABLE mq_pause (
    ring INTEGER NOT NULL,
    origin TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    who TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    until INTEGER, below INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ring, origin)
) STRICT;
INSERT INTO "mq_pause" VALUES(1,'hooli','audit','root',1795677351485000,NULL,0);
INSERT INTO "mq_pause" VALUES(2,'a','holidays','root',1795677351525000,NULL,1);
CREATE TABLE mq_pin (
    ring INTEGER NOT NULL REFERENCES mq_ring (id) ON DELETE CASCADE,
    origin TEXT NOT NULL,
    PRIMARY KEY (ring, origin)
) STRICT;
CREATE TABLE mq_ring (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
) STRICT;
INSERT INTO "mq_ring" VALUES(1,'default','{"heap_size":65536,"max_stale":256,"costs":{},"service_weight":[600000,1073741824],"order":"deficit","rounds_per_block":64,"paths":false,"ordered":true,"lease":1000000.0,"max_attempts":3,"backoff":0.0,"backoff_most":3600.0,"max_message_size":null,"max_headers":16384,"most_of_limit":null,"set_aside_above":"ring","set_aside_expires":null,"discard_unreadable":false,"max_origins":null,"max_origins_per_group":null,"invisible_origins":false,"max_block_queues":4096,"kept_for_regular":0.5,"high":true,"weigher":{"base":[1,0],"per_byte":[0,1000]},"keep_uploads":3600.0,"blob_path":null,"earlier_blob_paths":[],"whole_payloads":67108864,"key_window":1000000.0,"keep_events":604800.0,"keep_ledger":2592000.0}',1795677351463000);
INSERT INTO "mq_ring" VALUES(2,'groups','{"heap_size":65536,"max_stale":256,"costs":{},"service_weight":[600000,1073741824],"order":"deficit","rounds_per_block":256,"paths":true,"ordered":true,"lease":900.0,"max_attempts":null,"backoff":0.0,"backoff_most":3600.0,"max_message_size":null,"max_headers":16384,"most_of_limit":null,"set_aside_above":"ring","set_aside_expires":null,"discard_unreadable":false,"max_origins":null,"max_origins_per_group":null,"invisible_origins":false,"max_block_queues":4096,"kept_for_regular":0.5,"high":false,"weigher":{"base":[1,0],"per_byte":[0,1000]},"keep_uploads":3600.0,"blob_path":null,"earlier_blob_paths":[],"whole_payloads":67108864,"key_window":86400.0,"keep_events":604800.0,"keep_ledger":2592000.0}',1795677351512000);
CREATE TABLE "mq_sent_key" (
    ring INTEGER NOT NULL,
    key TEXT NOT NULL,
    origin TEXT NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (ring, key, origin)
) STRICT;
INSERT INTO "mq_sent_key" VALUES(1,'heavy','initech',X'01D88A68352FA7CFD6FA0909E9CBCB850FA91F18084E073A2D9C3490FA2ED6E64E',1795677351475000);
INSERT INTO "mq_sent_key" VALUES(1,'order-1','initech',X'01710C09CBD58324D60EB508EC4ACD087291401EA415C148BB98D053AD54702C34',1795677351504000);
INSERT INTO "mq_sent_key" VALUES(1,'order-2','initech',X'01707618F7BFE9141238D435AD4716C34CA162B27394B9982978E8810B36CD5CAE',1795677351505000);
CREATE TABLE mq_shard (
    ring INTEGER PRIMARY KEY REFERENCES mq_ring (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    layout TEXT NOT NULL
) STRICT;
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
, blocks INTEGER NOT NULL DEFAULT 0, lease_wanted INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "mq_state" VALUES(1,7,27,26,NULL,0,'',4,0);
INSERT INTO "mq_state" VALUES(2,2,43,42,NULL,0,'',1,0);
CREATE TABLE mq_upload (
    id INTEGER PRIMARY KEY,
    -- When it is given up; never, once it is a blob's.
    until INTEGER,
    -- The folder in which its file lies; none, where its bytes lie in chunks.
    path TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "mq_upload" VALUES(38,NULL,'');
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
CREATE INDEX mq_upload_past ON mq_upload (until, id) WHERE until IS NOT NULL;
CREATE INDEX mq_blob_use_by_hash ON mq_blob_use (hash);
CREATE INDEX mq_blob_use_past ON mq_blob_use (until, hash) WHERE until IS NOT NULL;
CREATE TRIGGER mq_mail_uses_blobs AFTER INSERT ON mq_mail
WHEN NEW.attributes <> x'' AND instr(NEW.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    INSERT INTO mq_blob_use (mail, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN mq_blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER mq_mail_leaves_blobs AFTER DELETE ON mq_mail
WHEN OLD.attributes <> x'' AND instr(OLD.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    UPDATE mq_blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
END;
CREATE TRIGGER mq_delayed_uses_blobs AFTER INSERT ON mq_delayed
WHEN NEW.attributes <> x'' AND instr(NEW.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    INSERT INTO mq_blob_use (mail, place, hash)
    SELECT NEW.id, CAST(said.key AS INTEGER), b.hash
    FROM json_each(CAST(NEW.attributes AS TEXT), '$.blobs') AS said
    JOIN mq_blob b ON b.hash = substr(said.value, 1, 64);
END;
CREATE TRIGGER mq_delayed_leaves_blobs AFTER DELETE ON mq_delayed
WHEN OLD.attributes <> x'' AND instr(OLD.attributes, CAST('"blobs":{' AS BLOB)) BEGIN
    UPDATE mq_blob_use SET until = 0 WHERE mail = OLD.id AND until IS NULL;
END;
CREATE INDEX mq_pause_of_groups ON mq_pause (ring) WHERE below;
CREATE INDEX mq_aside_by_block ON mq_aside (ring, block, origin, page, item);
CREATE INDEX mq_aside_by_first_block ON mq_aside (ring, arrived_block, origin, page, item);
CREATE INDEX mq_loan_by_lender ON mq_loan (lender_ring, lender_origin, lender_mail);
CREATE INDEX mq_sent_key_by_time ON mq_sent_key (ring, at);
CREATE UNIQUE INDEX mq_block_by_number ON mq_block (ring, number);
CREATE INDEX mq_ledger_by_time ON mq_ledger (ring, at);
CREATE INDEX delayed_by_origin ON mq_delayed (ring, origin);
COMMIT;
