package privatenets

import (
	"fmt"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Copies makes networks for the copies of a group. Each list has the members of one, with their addresses and
// aliases. The names are prefix-1 and so on, without those that exist. Until Settle they
// are not complete: sandboxes cannot join them, and the next daemon removes them.
func (s *Store) Copies(owner, prefix string, copies [][]Member) ([]Network, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := 0
	for of := range s.all {
		if of.owner == owner {
			has++
		}
	}
	if has+len(copies) > MaxPerOwner {
		return nil, sandbox.Errorf(sandbox.ErrQuota, sandbox.ReasonQuota,
			"the copies need %d networks, the tenant has %d, and may have %d: remove some with their members",
			len(copies), has, MaxPerOwner)
	}
	var made []*network
	number := 0
	for _, members := range copies {
		name, err := s.freeLocked(owner, prefix, &number)
		if err != nil {
			s.forgetLocked(made)
			return nil, err
		}
		n := newNetwork(Network{ID: newID(), Owner: owner, Name: name, Created: s.now().UTC(), Forming: true})
		for _, m := range members {
			n.at[m.Addr], s.in[m.Sandbox] = m, n
			if n.last.Less(m.Addr) {
				n.last = m.Addr
			}
		}
		s.all[ownedName{owner, name}] = n
		made = append(made, n)
	}
	if err := s.saveLocked(); err != nil {
		s.forgetLocked(made)
		return nil, err
	}
	out := make([]Network, 0, len(made))
	for _, n := range made {
		out = append(out, n.shown())
	}
	return out, nil
}

// freeLocked returns the next unused name after a number.
func (s *Store) freeLocked(owner, prefix string, number *int) (string, error) {
	for {
		*number++
		name := fmt.Sprintf("%s-%d", prefix, *number)
		if !namePattern.MatchString(name) {
			return "", sandbox.Errorf(sandbox.ErrInvalid, "",
				"network name %s: want 1 to 63 letters, digits, - or _, and no - or _ first", sandbox.Clip(name))
		}
		if s.all[ownedName{owner, name}] == nil {
			return name, nil
		}
	}
}

func (s *Store) forgetLocked(all []*network) {
	for _, n := range all {
		delete(s.all, ownedName{n.Owner, n.Name})
		for _, m := range n.at {
			if s.in[m.Sandbox] == n {
				delete(s.in, m.Sandbox)
			}
		}
	}
}

// Settle ends the making of copies: it completes some, and removes the others with the memberships in them.
func (s *Store) Settle(complete, discard []Network) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []*network
	for of, n := range s.all {
		same := func(o Network) bool { return o.ID == n.ID && o.Owner == of.owner }
		switch {
		case slices.ContainsFunc(discard, same):
			gone = append(gone, n)
		case slices.ContainsFunc(complete, same):
			n.Forming = false
		}
	}
	s.forgetLocked(gone)
	return s.saveLocked()
}

// Incomplete returns the copies of all tenants that are not complete.
func (s *Store) Incomplete() (all []Network) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		if n.Forming {
			all = append(all, n.shown())
		}
	}
	return all
}
