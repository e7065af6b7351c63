-- Who refers to which blob. Takes no lock.
SELECT u.mail, u.place, u.hash, u.until FROM {s}blob_use u
