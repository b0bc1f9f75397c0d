package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAHostBehindTranslationIsWarnedOf(t *testing.T) {
	private, public := netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("93.184.216.34")
	for _, c := range []struct {
		name, file, text string
		addrs            []netip.Addr
		want             string
	}{
		{"in AWS", "sys_vendor", "Amazon EC2\n", []netip.Addr{private}, "AWS"},
		{"in Azure", "chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", []netip.Addr{private}, "Azure"},
		{"with a public address", "sys_vendor", "Google", []netip.Addr{private, public}, ""},
		{"in no cloud", "sys_vendor", "QEMU", []netip.Addr{private}, ""},
		{"without firmware", "nothing", "", []netip.Addr{private}, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := behindTranslation(dir, c.addrs)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || c.want != "" && !strings.Contains(got, "--net-own-address") {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}
