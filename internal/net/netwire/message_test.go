package netwire_test

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/net/netwire"
)

var update = flag.Bool("update", false, "rewrite golden files")

func flow(p netwire.Protocol, guest, far string) netwire.Flow {
	return netwire.Flow{Protocol: p, Guest: netip.MustParseAddrPort(guest), Far: netip.MustParseAddrPort(far)}
}

var examples = []netwire.Message{
	{Kind: netwire.Open, ID: 1, Flow: flow(netwire.TCP, "192.0.0.2:40000", "93.184.216.34:443")},
	{Kind: netwire.Open, ID: 2, Flow: flow(netwire.UDP, "[fd66:6f72:6b64::2]:5353", "[2606:2800:220::1]:53")},
	{Kind: netwire.Open, ID: 3, Flow: flow(netwire.Echo, "192.0.0.2:7", "1.1.1.1:0")},
	{Kind: netwire.Opened, ID: 1},
	{Kind: netwire.Refused, ID: 2, Reason: netwire.TimedOut},
	{Kind: netwire.Cancel, ID: 0xffffffff},
	{Kind: netwire.Finished, ID: 1},
	{Kind: netwire.Broken, ID: 3},
	{Kind: netwire.Link},
}

func TestMessagesAreTheBytesOfTheFirstRelease(t *testing.T) {
	var text strings.Builder
	for _, m := range examples {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, hex.EncodeToString(b[:]))
		if back, err := netwire.Decode(b[:]); err != nil || back != m {
			t.Errorf("%+v came back as %+v, %v", m, back, err)
		}
	}
	const file = "testdata/v1.hex"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("messages are\n%swant\n%s", text.String(), want)
	}
}

func TestDecodeRefusesWhatEncodeDoesNotMake(t *testing.T) {
	open, err := examples[0].Encode()
	if err != nil {
		t.Fatal(err)
	}
	refused, err := examples[4].Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of [netwire.Size]byte
		at int
		to byte
	}{
		"another version":                 {open, 0, 2},
		"kind 0":                          {open, 1, 0},
		"kind 5":                          {open, 1, 5},
		"an unknown protocol":             {open, 2, 58},
		"an Open with a reason":           {open, 3, 1},
		"bytes behind an IPv4 address":    {open, 13, 1},
		"no family":                       {open, 44, 0},
		"something in the reserved bytes": {open, 63, 1},
		"a refusal without a reason":      {refused, 3, 0},
		"a refusal for reason 6":          {refused, 3, 6},
		"a refusal with a protocol":       {refused, 2, 6},
		"a refusal with a flow":           {refused, 40, 1},
	} {
		b := c.of
		b[c.at] = c.to
		if m, err := netwire.Decode(b[:]); !errors.Is(err, netwire.ErrMessage) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if _, err := netwire.Decode(open[:63]); !errors.Is(err, netwire.ErrMessage) {
		t.Errorf("a short message: %v", err)
	}
}

func TestEncodeRefusesFlowsOfTwoFamilies(t *testing.T) {
	m := netwire.Message{Kind: netwire.Open, Flow: flow(netwire.TCP, "192.0.0.2:1", "[2606::1]:1")}
	if _, err := m.Encode(); !errors.Is(err, netwire.ErrMessage) {
		t.Errorf("two families: %v", err)
	}
	m.Flow = netwire.Flow{Protocol: netwire.TCP}
	if _, err := m.Encode(); !errors.Is(err, netwire.ErrMessage) {
		t.Errorf("no addresses: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range examples {
		b, _ := m.Encode()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := netwire.Decode(b)
		if err != nil {
			return
		}
		if back, err := m.Encode(); err != nil || string(back[:]) != string(b) {
			t.Errorf("%x came back as %x, %v", b, back, err)
		}
	})
}

func FuzzParsePacket(f *testing.F) {
	f.Add([]byte{0, 1, 2})
	f.Add(netwire.RefusalPacket(netwire.Reset))
	f.Fuzz(func(t *testing.T, b []byte) {
		datagram, refused, err := netwire.ParsePacket(b)
		if err == nil && (datagram == nil) != (refused != 0) {
			t.Errorf("%x is %x and %s", b, datagram, refused)
		}
	})
}
