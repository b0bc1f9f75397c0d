package network

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/net/netd/nettest"
)

// A guest with a forged entry in its hosts file reaches the real host of the name, or none.
func TestAForgedHostsFileLeadsNowhereElse(t *testing.T) {
	w := shared(t, "example.com")
	w.root(t, w.guest, `cp /etc/hosts /tmp/hosts && echo "`+other+` example.com" >> /etc/hosts`)
	defer w.root(t, w.guest, `cat /tmp/hosts > /etc/hosts`)
	if got := value[[]string](t, w, w.guest, `addresses("example.com")`); len(got) != 1 || got[0] != other {
		t.Fatalf("the guest takes example.com for %q", got)
	}
	w.wantText(t, w.guest, `fetch("http://example.com/")`, "the web")
	w.wantText(t, w.guest, `fetch("https://example.com/")`, "the web")
	w.wantRefused(t, w.guest, `dial("example.com", `+echoPort+`)`, "ECONNREFUSED")
}

// cut lists the errors of a TLS client whose connection is reset during the handshake.
var cut = []string{"ECONNRESET", "EPIPE", "SSLEOFError", "SSLZeroReturnError"}

func TestTheNameInTheFirstBytesDecides(t *testing.T) {
	w := shared(t, "example.com")
	w.wantText(t, w.guest, `fetch("http://example.com/")`, "the web") // its address has the name now
	t.Run("another name at an allowed address", func(t *testing.T) {
		w.wantRefused(t, w.guest, `handshake("example.com", 443, "other.example.com")`, cut...)
		w.wantRefused(t, w.guest, `fetch("http://example.com/", Host="other.example.com")`,
			"ECONNRESET", "RemoteDisconnected")
	})
	t.Run("an allowed name at another address", func(t *testing.T) {
		w.wantPage(t, `handshake("`+other+`", 443, "example.com")`)
		w.wantText(t, w.guest, `fetch("http://`+other+`/", Host="example.com")`, "the web")
	})
	t.Run("no name at an address that has none", func(t *testing.T) {
		w.wantRefused(t, w.guest, `handshake("`+other+`", 443, None)`, cut...)
		w.wantRefused(t, w.guest, `plain("`+other+`", 80, "\x01\x02")`, "ECONNRESET", "EPIPE")
	})
}

// wantPage checks for the answer of the allowed host.
func (w *world) wantPage(t *testing.T, expr string) {
	t.Helper()
	w.wantText(t, w.guest, expr+`.rsplit("\r\n", 1)[-1]`, "the web")
}

// Names may resolve to any address: denied addresses stay closed.
func TestNamesOfClosedAddressesOpenNothing(t *testing.T) {
	w := shared(t, "*.example.com")
	for _, name := range []string{"meta", "inner", "map"} {
		w.wantRefused(t, w.guest, `fetch("http://`+name+`.example.com/")`, "EAI_NONAME", "EAI_NODATA", "ECONNREFUSED")
	}
	// The guest has its own localhost, which must not be the host's.
	w.wantRefused(t, w.guest, `dial("home.example.com", 80)`, "EAI_NONAME", "EAI_NODATA", "ECONNREFUSED")
}

// All answers of the far DNS have a TTL of 0. An address stays valid if the guest uses it a moment
// later.
func TestAnAnswerWithoutATimeToLiveLastsUntilTheConnect(t *testing.T) {
	w := shared(t, "example.com", "six.example.com")
	w.run(t, w.guest, `kept = addresses("example.com"); time.sleep(1.1)`)
	w.wantText(t, w.guest, `exchange(dial(kept[0], `+echoPort+`), "late")`, "late")
	w.wantText(t, w.guest, `fetch("http://six.example.com/")`, "the web")
}

func TestAddressLiteralsDoNotPassRulesOfNames(t *testing.T) {
	w := shared(t, "example.com")
	for _, addr := range []string{
		other, "::ffff:" + other, "64:ff9b::5db8:d823", "2002:5db8:d823::1", // other forms of the same address
		nettest.HostAddr, "10.0.0.1", "::ffff:10.0.0.1", "169.254.169.254", "fd00:ec2::254", "100.64.0.1",
	} {
		w.wantRefused(t, w.guest, `dial("`+addr+`", `+echoPort+`)`, "ECONNREFUSED")
	}
	w.wantRefused(t, w.guest, `dial("`+nettest.Resolver+`", 53)`, "ECONNREFUSED")
	w.wantRefused(t, w.guest, `udp("`+nettest.Resolver+`", 53, "a question")`, unreachable...)
}

// unreachable lists the errors of a refused datagram's sender.
var unreachable = []string{"EHOSTUNREACH", "ECONNREFUSED", "EACCES"}

// Public allows public addresses, but not the operator's denied ones and not paths around the
// resolver.
func TestPublicIsNotEverything(t *testing.T) {
	w := shared(t)
	w.set(t, w.guest, api.SetNetworkRequest{Net: api.NetPublic})
	w.wantText(t, w.guest, `exchange(dial("`+other+`", `+echoPort+`), "public")`, "public")
	w.wantText(t, w.guest, `exchange(dial("`+web+`", 853), "public")`, "public")
	for _, addr := range []string{"169.254.169.254", "10.0.0.1", "::ffff:169.254.169.254", "fd00:ec2::254", nettest.HostAddr,
		"64:ff9b::a9fe:a9fe", forbidden} {
		w.wantRefused(t, w.guest, `dial("`+addr+`", 80)`, "ECONNREFUSED")
	}
	w.wantRefused(t, w.guest, `addresses("host.forkd.internal")`, "EAI_NONAME")

	// With rules on names, connections that hide their name are refused.
	w.set(t, w.guest, api.SetNetworkRequest{Network: &api.NetworkPolicy{Default: "public", Deny: []string{"secret.example.org"}}})
	w.wantText(t, w.guest, `udp("`+other+`", `+echoPort+`, "public")`, "public")
	w.wantRefused(t, w.guest, `dial("`+web+`", 853)`, "ECONNREFUSED")
	w.wantRefused(t, w.guest, `udp("`+nettest.Resolver+`", 53, "a question")`, unreachable...)
	w.wantRefused(t, w.guest, `udp("`+web+`", 443, "an Initial packet")`, unreachable...)
	w.wantRefused(t, w.guest, `addresses("secret.example.org")`, "EAI_NONAME")
}
