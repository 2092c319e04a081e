"""People, the tenants they belong to, and which tenant owned which scheduler account, when."""

from portal.core.tenants.models.access import AccountMail, Invitation, SupportView
from portal.core.tenants.models.brand import Brand, BrandLogo
from portal.core.tenants.models.notes import TenantNote
from portal.core.tenants.models.sign_on import Exclusion, IdentityGrant, IdentityProvider
from portal.core.tenants.models.tenants import (
    COUNTRY,
    REGION,
    Corrections,
    Membership,
    OperatorRole,
    Ownership,
    Project,
    Role,
    TaxTreatment,
    Tenant,
    User,
    UserManager,
    ZeroInvoices,
    same,
    validate_zone,
)

__all__ = [
    "COUNTRY",
    "REGION",
    "AccountMail",
    "Brand",
    "BrandLogo",
    "Corrections",
    "Exclusion",
    "IdentityGrant",
    "IdentityProvider",
    "Invitation",
    "Membership",
    "OperatorRole",
    "Ownership",
    "Project",
    "Role",
    "SupportView",
    "TaxTreatment",
    "Tenant",
    "TenantNote",
    "User",
    "UserManager",
    "ZeroInvoices",
    "same",
    "validate_zone",
]
