package arch

import "testing"

// netpolicyMayImport is all that verdicts are made of: no file, no socket, no other room but
// one that keeps no time of its own.
var netpolicyMayImport = map[string]string{
	"internal/leaf/guestnet":       "addresses of guests' wires",
	"internal/leaf/proxyurl":       "URLs of proxies, as texts",
	"internal/leaf/pace":           "token buckets that are told the time",
	"github.com/goccy/go-yaml":     "policy files, as bytes",
	"github.com/goccy/go-yaml/ast": "their lines",
	"golang.org/x/net/idna":        "names in other scripts",
	"net/netip":                    "addresses without sockets",
	"container/list":               "", "cmp": "", "encoding/hex": "", "errors": "", "fmt": "", "maps": "", "regexp": "", "slices": "",
	"sort": "", "strconv": "", "strings": "", "sync": "", "sync/atomic": "", "time": "", "unicode/utf8": "",
}

// Who decides which flows may be touches nothing: the same question has the same answer.
func TestVerdictsArePure(t *testing.T) {
	found := false
	for _, p := range packages(t) {
		if p.name() != "internal/net/netpolicy" {
			continue
		}
		found = true
		for _, imp := range p.Imports {
			if _, may := netpolicyMayImport[short(imp)]; !may {
				t.Errorf("internal/net/netpolicy imports %s: it decides, and does no I/O", imp)
			}
		}
	}
	if !found {
		t.Error("internal/net/netpolicy is not there")
	}
}
