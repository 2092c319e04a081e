-- Files with the charges of all tenants: operators' alone.
GRANT SELECT, INSERT, UPDATE, DELETE ON billing_focusexport, billing_focusexportpart TO clustertab_operator;
GRANT USAGE, SELECT ON SEQUENCE billing_focusexport_id_seq, billing_focusexportpart_id_seq TO clustertab_operator;
GRANT USAGE ON SEQUENCE billing_focusexport_id_seq, billing_focusexportpart_id_seq TO clustertab_agent;
