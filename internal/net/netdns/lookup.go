package netdns

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// ErrNoAddress is the error for a name without an allowed address.
var ErrNoAddress = errors.New("the name has no address that may be dialled")

// Blocked is the error for a name that the policy does not allow.
type Blocked struct {
	Entry Entry // its Text is the text of the error
}

func (b *Blocked) Error() string { return b.Entry.Text }

// Detail returns the text for the operator. See Entry.
func (b *Blocked) Detail() string { return b.Entry.Detail }

// Failed is the error for a name that the host's resolver did not answer.
type Failed struct {
	Entry Entry // its Text is the text of the error
}

func (f *Failed) Error() string { return f.Entry.Text }

// Detail returns the text for the operator. See Entry.
func (f *Failed) Detail() string { return f.Entry.Detail }

// Lookup resolves a canonical name for a guest in the same way as Answer: judged, without addresses
// of the floor, and with facts. It is for a proxy that has read the name from a flow. It takes no
// query from the guest's budget, because the flow was counted. IPv4 comes first.
func (r *Resolver) Lookup(ctx context.Context, g Guest, name string) ([]netip.Addr, error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, ErrNoAddress
	}
	types := []dnsmessage.Type{dnsmessage.TypeA}
	if r.cfg.HasIPv6() {
		types = append(types, dnsmessage.TypeAAAA)
	}
	entries := make([]Entry, len(types))
	done := make(chan struct{})
	for i, t := range types {
		go func() {
			defer func() { done <- struct{}{} }()
			entries[i] = Entry{Name: name, Type: uint16(t)}
			q := dnsmessage.Question{Name: n, Type: t, Class: dnsmessage.ClassINET}
			entries[i].RCode = uint16(r.resolve(ctx, g, q, &entries[i]).rcode)
		}()
	}
	for range types {
		<-done
	}
	return addresses(entries)
}

func addresses(entries []Entry) (all []netip.Addr, err error) {
	err = ErrNoAddress
	for _, e := range entries {
		all = append(all, e.Addrs...)
		switch {
		case len(e.Removed) > 0, e.RCode == uint16(dnsmessage.RCodeNameError) && refused(e.Reason):
			err = &Blocked{e}
		case e.RCode == uint16(dnsmessage.RCodeServerFailure) && errors.Is(err, ErrNoAddress):
			err = &Failed{e}
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, err
}

// refused distinguishes decisions against a name from decisions for it.
func refused(r netpolicy.Reason) bool {
	return r != netpolicy.AttestedName && r != netpolicy.DefaultPublic && r != netpolicy.RuleAllow
}
