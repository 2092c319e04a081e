"""How Django writes days and times in the administration: as `portal.web.format` does on the pages."""

DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i"
DATETIME_FORMAT = "j M Y, H:i"
