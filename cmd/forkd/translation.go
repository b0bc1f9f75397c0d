package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// dmiDir has what the firmware says of the host's maker.
const dmiDir = "/sys/class/dmi/id"

// maxDMI bounds one of its files.
const maxDMI = 256

// clouds are words in sys_vendor, product_name, bios_vendor or chassis_asset_tag of clouds' hosts, which
// commonly have a private address and a public one that the cloud translates to it.
var clouds = []struct{ word, name string }{
	{"amazon", "AWS"}, {"google", "Google Cloud"}, {"7783-7084-3265-9085-8269-3286-77", "Azure"},
	{"oraclecloud", "Oracle Cloud"}, {"alibaba", "Alibaba Cloud"}, {"tencent", "Tencent Cloud"},
	{"openstack", "OpenStack"}, {"digitalocean", "DigitalOcean"}, {"hetzner", "Hetzner"}, {"scaleway", "Scaleway"},
	{"huawei cloud", "Huawei Cloud"}, {"exoscale", "Exoscale"}, {"ibm:cloud", "IBM Cloud"},
}

// cloudOf returns the cloud that a host is in by its firmware; empty: in none that is known.
func cloudOf(dir string) string {
	for _, file := range []string{"sys_vendor", "product_name", "bios_vendor", "chassis_asset_tag"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		text := strings.ToLower(string(b[:min(len(b), maxDMI)]))
		for _, c := range clouds {
			if strings.Contains(text, c.word) {
				return c.name
			}
		}
	}
	return ""
}

// behindTranslation returns a warning about a host in a cloud that has no public address of its own:
// guests may then reach it by one that forkd does not know. Empty: it is not such a host.
func behindTranslation(dmi string, addrs []netip.Addr) string {
	cloud := cloudOf(dmi)
	if cloud == "" || slices.ContainsFunc(addrs, netpolicy.IsPublic) {
		return ""
	}
	return fmt.Sprintf("this host is in a cloud (%s) and has private addresses only: if it has a public one, "+
		"sandboxes may reach the host by it; close it with --net-own-address ADDRESS", cloud)
}

// ownAddrs are the addresses of the host's interfaces.
func ownAddrs() (all []netip.Addr) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr())
		}
	}
	return all
}
