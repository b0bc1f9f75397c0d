package netdns

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Limits of an upstream's answer.
const (
	maxChain   = 16               // consecutive aliases
	maxRecords = 256              // of an answer
	maxTTL     = time.Hour        // a guest caches records for at most this time
	grace      = 30 * time.Second // a fact outlives the answer, for a connect at its last moment
)

// answered contains the types of records that guests may ask for and receive. HTTPS and SVCB are
// excluded: they contain keys that encrypt the name, and addresses of their own.
var answered = map[dnsmessage.Type]bool{
	dnsmessage.TypeA: true, dnsmessage.TypeAAAA: true, dnsmessage.TypeCNAME: true, dnsmessage.TypeMX: true,
	dnsmessage.TypeTXT: true, dnsmessage.TypeSRV: true, dnsmessage.TypeNS: true, dnsmessage.TypeSOA: true,
	dnsmessage.TypePTR: true,
}

var errLoop = errors.New("aliases in the answer go round in a loop, or on for too long")

// kept is the used part of an upstream's answer: records of the requested name and of the names
// behind its aliases.
type kept struct {
	names   []string // the requested name, then each alias's target; lowercase, no final dot
	records []dnsmessage.Resource
	soa     []dnsmessage.Resource // for negative answers
}

// keep follows the chain of aliases from the question. It drops all other records, because an
// upstream may only answer the question.
func keep(q dnsmessage.Question, m *dnsmessage.Message) (kept, error) {
	k := kept{names: []string{fold(q.Name)}}
	seen := map[string]bool{k.names[0]: true}
	if q.Type != dnsmessage.TypeCNAME {
		for {
			alias, target := findAlias(m.Answers, k.names[len(k.names)-1])
			if alias == nil {
				break
			}
			if seen[target] || len(k.names) > maxChain {
				return kept{}, errLoop
			}
			seen[target] = true
			k.names = append(k.names, target)
			k.records = append(k.records, tidy(*alias, q))
		}
	}
	last := k.names[len(k.names)-1]
	for _, r := range m.Answers {
		if len(k.records) < maxRecords && r.Header.Type == q.Type && isIN(r) && fold(r.Header.Name) == last {
			k.records = append(k.records, tidy(r, q))
		}
	}
	k.soa = findSOA(m.Authorities, last, q)
	return k, nil
}

func isIN(r dnsmessage.Resource) bool { return r.Header.Class == dnsmessage.ClassINET && r.Body != nil }

func findAlias(answers []dnsmessage.Resource, name string) (r *dnsmessage.Resource, target string) {
	for i := range answers {
		c, ok := answers[i].Body.(*dnsmessage.CNAMEResource)
		if ok && isIN(answers[i]) && fold(answers[i].Header.Name) == name {
			return &answers[i], fold(c.CNAME)
		}
	}
	return nil, ""
}

// findSOA returns the SOA of the zone that contains the name, so guests know how long the negative
// answer is valid.
func findSOA(list []dnsmessage.Resource, name string, q dnsmessage.Question) []dnsmessage.Resource {
	for _, r := range list {
		zone := fold(r.Header.Name)
		above := zone == name || zone == "" || strings.HasSuffix(name, "."+zone)
		if _, ok := r.Body.(*dnsmessage.SOAResource); ok && isIN(r) && above {
			return []dnsmessage.Resource{tidy(r, q)}
		}
	}
	return nil
}

// tidy returns a record in the form for the guest. Its name is spelled as in the guest's question,
// or in lowercase: the question to the upstream has letters of random case, and the answer may
// contain them.
func tidy(r dnsmessage.Resource, q dnsmessage.Question) dnsmessage.Resource {
	r.Header.TTL = min(r.Header.TTL, uint32(maxTTL/time.Second))
	if fold(r.Header.Name) == fold(q.Name) {
		r.Header.Name = q.Name
	} else {
		r.Header.Name = lower(r.Header.Name)
	}
	switch b := r.Body.(type) {
	case *dnsmessage.CNAMEResource:
		r.Body = &dnsmessage.CNAMEResource{CNAME: lower(b.CNAME)}
	case *dnsmessage.NSResource:
		r.Body = &dnsmessage.NSResource{NS: lower(b.NS)}
	case *dnsmessage.PTRResource:
		r.Body = &dnsmessage.PTRResource{PTR: lower(b.PTR)}
	case *dnsmessage.MXResource:
		r.Body = &dnsmessage.MXResource{Pref: b.Pref, MX: lower(b.MX)}
	case *dnsmessage.SRVResource:
		r.Body = &dnsmessage.SRVResource{Priority: b.Priority, Weight: b.Weight, Port: b.Port, Target: lower(b.Target)}
	case *dnsmessage.SOAResource:
		soa := *b
		soa.NS = lower(b.NS)
		r.Body = &soa
	}
	return r
}

func lower(n dnsmessage.Name) dnsmessage.Name {
	for i, c := range n.Data[:n.Length] {
		if c >= 'A' && c <= 'Z' {
			n.Data[i] = c | 0x20
		}
	}
	return n
}

// fold returns a name in the form for comparison.
func fold(n dnsmessage.Name) string { return strings.ToLower(strings.TrimSuffix(n.String(), ".")) }

// address returns the address of an A or AAAA record.
func address(r dnsmessage.Resource) (netip.Addr, bool) {
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(b.A), true
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(b.AAAA), true
	}
	return netip.Addr{}, false
}

func ttl(r dnsmessage.Resource) time.Duration { return time.Duration(r.Header.TTL) * time.Second }
