package api

// Tenant describes the operator's settings for a tenant.
type Tenant struct {
	Name      string `json:"name" doc:"Name of the tenant"`
	CPUWeight int    `json:"cpu_weight" doc:"CPU share of all its sandboxes together under contention; the default of other tenants is 100"`
}

// SetTenantRequest is the body of PUT /v1/tenants/{tenant}.
type SetTenantRequest struct {
	CPUWeight int `json:"cpu_weight" doc:"Share of all its sandboxes together where CPUs are short; 100 is the default. It holds at once" minimum:"1" maximum:"10000"`
}
