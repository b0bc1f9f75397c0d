package op

// Belongings are what sandboxes have of their tenants' things: volumes, and places in private networks. Groups forks
// the networks.
type Belongings struct {
	*Volumes
	*Networks
	*Groups
}

// NewBelongings returns Belongings.
func NewBelongings(o *Ops) *Belongings {
	return &Belongings{NewVolumes(o), NewNetworks(o), NewGroups(o)}
}

// AdoptBelongings gives the belongings of the sandboxes of an earlier daemon back to them.
func (h *Belongings) AdoptBelongings() {
	h.AdoptVolumes()
	h.AdoptNetworks()
}
