-- Runs once, when the database's volume is new. The application is no superuser, since row level
-- security does not bind superusers; it may create the roles that row level security needs.
\getenv password CLUSTERTAB_PASSWORD
CREATE ROLE clustertab LOGIN NOSUPERUSER CREATEDB CREATEROLE PASSWORD :'password';
CREATE DATABASE clustertab OWNER clustertab;
