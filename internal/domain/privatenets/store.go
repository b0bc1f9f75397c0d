package privatenets

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Limits of each tenant and each network.
const (
	MaxPerOwner = 16
	MaxMembers  = 32
)

// version is that of the file. Another one is refused.
const version = 1

// maxFile limits the file, in bytes.
const maxFile = 16 << 20

// Network describes a private network.
type Network struct {
	ID      string    `json:"id"`                // not reused: a network made again under the same name has another
	Owner   string    `json:"owner,omitempty"`   // tenant; empty for the operator
	Name    string    `json:"name"`              // unique within its owner
	Created time.Time `json:"created"`           // by the daemon's clock
	Forming bool      `json:"forming,omitempty"` // a copy of a group which is not complete
	Members []Member  `json:"-"`                 // by alias
}

// Member is a sandbox in a network.
type Member struct {
	Sandbox string     // running or paused
	Alias   string     // others find it as ALIAS.forkd.internal
	Addr    netip.Addr // in the eyes of the others
}

// file is the content of the file.
type file struct {
	Version  int       `json:"version"`
	Networks []Network `json:"networks"`
}

type ownedName struct{ owner, name string }

// network is a network with its members.
type network struct {
	Network
	at   map[netip.Addr]Member
	last netip.Addr // given to the newest member
}

// Store holds the networks of all tenants. Its methods are safe for concurrent use.
type Store struct {
	path string
	now  func() time.Time

	mu  sync.Mutex // held while the file is written
	all map[ownedName]*network
	in  map[string]*network // by sandbox
}

// Open reads the networks from a file, which may be missing.
func Open(path string, now func() time.Time) (*Store, error) {
	s := &Store{path: path, now: now, all: map[ownedName]*network{}, in: map[string]*network{}}
	b, err := durable.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the private networks: %w", err)
	}
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Version != version {
		return nil, fmt.Errorf("%s has version %d, and this forkd reads %d", path, f.Version, version)
	}
	for _, n := range f.Networks {
		s.all[ownedName{n.Owner, n.Name}] = newNetwork(n)
	}
	return s, nil
}

func newNetwork(n Network) *network { return &network{Network: n, at: map[netip.Addr]Member{}} }

// saveLocked writes the file.
func (s *Store) saveLocked() error {
	f := file{Version: version, Networks: []Network{}}
	for _, n := range s.all {
		f.Networks = append(f.Networks, n.Network)
	}
	slices.SortFunc(f.Networks, func(a, b Network) int { return cmp.Compare(a.ID, b.ID) })
	b, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = durable.Rewrite(s.path, append(b, '\n'))
	}
	switch {
	case err == nil:
		return nil
	case sandbox.IsNoSpace(err):
		return sandbox.NoSpace(err)
	}
	return fmt.Errorf("write the private networks: %w", err)
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	aliasPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// Create makes a network of a tenant.
func (s *Store) Create(owner, name string) (Network, error) {
	if !namePattern.MatchString(name) {
		return Network{}, sandbox.Errorf(sandbox.ErrInvalid, "",
			"network name %s: want 1 to 63 letters, digits, - or _, and no - or _ first", sandbox.Clip(name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[ownedName{owner, name}] != nil {
		return Network{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetworkExists, "network %s exists already", name)
	}
	has := 0
	for of := range s.all {
		if of.owner == owner {
			has++
		}
	}
	if has >= MaxPerOwner {
		return Network{}, sandbox.Errorf(sandbox.ErrQuota, sandbox.ReasonQuota,
			"network %s would be one more than the %d that a tenant may have", name, MaxPerOwner)
	}
	n := newNetwork(Network{ID: newID(), Owner: owner, Name: name, Created: s.now().UTC()})
	s.all[ownedName{owner, name}] = n
	if err := s.saveLocked(); err != nil {
		delete(s.all, ownedName{owner, name})
		return Network{}, err
	}
	return n.shown(), nil
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "net-" + hex.EncodeToString(b[:])
}

// shown returns the network with a list of its members. The store's lock is held.
func (n *network) shown() Network {
	out := n.Network
	out.Members = []Member{}
	for _, m := range n.at {
		out.Members = append(out.Members, m)
	}
	slices.SortFunc(out.Members, func(a, b Member) int { return cmp.Compare(a.Alias, b.Alias) })
	return out
}

// List returns a tenant's networks by name.
func (s *Store) List(owner string) []Network {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []Network{}
	for of, n := range s.all {
		if of.owner == owner {
			all = append(all, n.shown())
		}
	}
	slices.SortFunc(all, func(a, b Network) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Get returns a tenant's network.
func (s *Store) Get(owner, name string) (Network, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.getLocked(owner, name)
	if err != nil {
		return Network{}, err
	}
	return n.shown(), nil
}

func (s *Store) getLocked(owner, name string) (*network, error) {
	if n := s.all[ownedName{owner, name}]; n != nil {
		return n, nil
	}
	return nil, sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonNetworkNotFound, "no such network: %s",
		sandbox.Clip(name))
}

// Remove removes a network without members.
func (s *Store) Remove(owner, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.getLocked(owner, name)
	if err != nil {
		return err
	}
	for _, m := range n.at {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetworkInUse,
			"network %s has %d members, such as sandbox %s", name, len(n.at), m.Sandbox)
	}
	delete(s.all, ownedName{owner, name})
	if err := s.saveLocked(); err != nil {
		s.all[ownedName{owner, name}] = n
		return err
	}
	return nil
}

// Join makes new sandboxes members of a network, or returns an error. Without an alias, each has its id. The
// caller calls Leave for those that do not come to be.
func (s *Store) Join(owner string, j sandbox.NetJoin, sandboxes []string) (map[string]sandbox.Member, error) {
	switch {
	case j.Alias == "":
	case !aliasPattern.MatchString(j.Alias) || j.Alias == "host":
		return nil, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetworkAlias,
			"alias %s: want 1 to 63 lowercase letters, digits or -, no - at an end, and not host", sandbox.Clip(j.Alias))
	case len(sandboxes) != 1:
		return nil, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetworkAlias,
			"alias %s is for one sandbox, and %d were asked for: without an alias, each has its id", j.Alias, len(sandboxes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.getLocked(owner, j.Network)
	if err != nil {
		return nil, err
	}
	if n.Forming {
		return nil, sandbox.Errorf(sandbox.ErrConflict, "", "network %s is being made by a fork of a group", n.Name)
	}
	if len(n.at)+len(sandboxes) > MaxMembers {
		return nil, sandbox.Errorf(sandbox.ErrQuota, sandbox.ReasonQuota, "network %s would have %d members, and may have %d",
			n.Name, len(n.at)+len(sandboxes), MaxMembers)
	}
	for _, m := range n.at {
		if m.Alias == j.Alias {
			return nil, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetworkAlias, "network %s has a member %s already: "+
				"sandbox %s", n.Name, m.Alias, m.Sandbox)
		}
	}
	out := map[string]sandbox.Member{}
	for _, id := range sandboxes {
		m := Member{Sandbox: id, Alias: cmp.Or(j.Alias, id), Addr: n.next()}
		n.at[m.Addr], n.last, s.in[id] = m, m.Addr, n
		out[id] = sandbox.Member{Network: n.Name, NetworkID: n.ID, Alias: m.Alias, Addr: m.Addr}
	}
	return out, nil
}

// next returns a free address. Addresses go round, so that a new member seldom has that of one which
// has just left and is still in others' memory.
func (n *network) next() netip.Addr {
	first := guestnet.Members4.Addr().Next()
	for a := n.last.Next(); ; a = a.Next() {
		if !guestnet.Members4.Contains(a) || !guestnet.Members4.Contains(a.Next()) {
			a = first
		}
		if _, taken := n.at[a]; !taken {
			return a
		}
	}
}

// Leave ends the membership of a sandbox, if it has one.
func (s *Store) Leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.in[id]
	if n == nil {
		return
	}
	delete(s.in, id)
	for a, m := range n.at {
		if m.Sandbox == id {
			delete(n.at, a)
		}
	}
}

// Adopt restores the membership of a sandbox of an earlier daemon. A network whose file was lost is
// listed again.
func (s *Store) Adopt(owner, id string, as sandbox.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.all[ownedName{owner, as.Network}]
	if n == nil {
		n = newNetwork(Network{ID: as.NetworkID, Owner: owner, Name: as.Network, Created: s.now().UTC()})
		s.all[ownedName{owner, as.Network}] = n
	}
	if n.ID != as.NetworkID {
		return // of a network that was removed: forkd-net keeps it apart by its id
	}
	n.at[as.Addr], s.in[id] = Member{Sandbox: id, Alias: as.Alias, Addr: as.Addr}, n
}
