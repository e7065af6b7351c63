-- Which of these mails there are, joined or not. Takes no lock.
SELECT m.id FROM {s}mail m WHERE m.id = :mail UNION ALL SELECT d.id FROM {s}delayed d WHERE d.id = :mail
