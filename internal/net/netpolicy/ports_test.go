package netpolicy

import (
	"strings"
	"testing"
)

func TestPortRangesAreRead(t *testing.T) {
	for text, want := range map[string]PortRange{
		"8080": OnePort(8080), "1": OnePort(1), "65535": OnePort(65535), "1024-65535": {1024, 65535}, "7-7": OnePort(7),
	} {
		r, err := ParsePortRange(text)
		if err != nil || r != want {
			t.Errorf("%s: got %v, %v", text, r, err)
		}
		if again, err := ParsePortRange(r.String()); err != nil || again != want {
			t.Errorf("%s: as text it is %q, read as %v, %v", text, r, again, err)
		}
	}
	for _, text := range []string{"", "0", "0-5", "65536", "80-", "-80", "90-80", "1-2-3", "http", " 80", "+80", "1024-65536"} {
		if r, err := ParsePortRange(text); err == nil || !strings.Contains(err.Error(), "want a port from 1 to 65535") {
			t.Errorf("%q: got %v, %v", text, r, err)
		}
	}
}

func TestARangeOfPortsOfTheHost(t *testing.T) {
	f, err := NewFloor(FloorConfig{HostPorts: []PortRange{OnePort(80), {1024, 65535}}})
	if err != nil {
		t.Fatal(err)
	}
	for port, want := range map[uint16]bool{0: false, 79: false, 80: true, 81: false, 1023: false, 1024: true, 9000: true, 65535: true} {
		if at, open := f.HostPort(port); open != want || open && at.Port() != port {
			t.Errorf("%d: got %s, %t", port, at, open)
		}
	}
	for _, r := range []PortRange{{}, {0, 5}, {9, 8}} {
		if _, err := NewFloor(FloorConfig{HostPorts: []PortRange{r}}); err == nil {
			t.Errorf("%+v is opened", r)
		}
	}
}
