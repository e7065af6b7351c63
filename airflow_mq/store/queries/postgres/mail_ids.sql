-- Which of these mails there are, joined or not; the check's own question. Takes no lock.
SELECT m.id FROM {s}mail m WHERE m.id = ANY(%(mail)b::bigint[])
UNION ALL SELECT d.id FROM {s}delayed d WHERE d.id = ANY(%(mail)b::bigint[])
