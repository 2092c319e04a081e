-- Runs once, when the database's volume is new. Neither login is a superuser, since row level security does not bind
-- superusers. The owner migrates, and may create the roles that row level security needs; everything else runs as the
-- other one, to which it grants them.
\getenv owner_password CLUSTERTAB_OWNER_PASSWORD
\getenv password CLUSTERTAB_PASSWORD
CREATE ROLE clustertab_owner LOGIN NOSUPERUSER CREATEDB CREATEROLE PASSWORD :'owner_password';
CREATE ROLE clustertab LOGIN NOSUPERUSER PASSWORD :'password';
CREATE DATABASE clustertab OWNER clustertab_owner;
