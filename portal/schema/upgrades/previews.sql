-- What operators preview: operators' alone.
GRANT SELECT, INSERT, UPDATE, DELETE ON billing_preview TO clustertab_operator;
GRANT USAGE, SELECT ON SEQUENCE billing_preview_id_seq TO clustertab_operator;
GRANT USAGE ON SEQUENCE billing_preview_id_seq TO clustertab_agent;
