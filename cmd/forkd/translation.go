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

// dmiDir has the firmware's information about the host's vendor.
const dmiDir = "/sys/class/dmi/id"

// maxDMI limits one of its files, in bytes.
const maxDMI = 256

// clouds lists words in sys_vendor, product_name, bios_vendor or chassis_asset_tag of cloud hosts.
// Such hosts commonly have a private address, to which the cloud translates a public one.
var clouds = []struct{ word, name string }{
	{"amazon", "AWS"}, {"google", "Google Cloud"}, {"7783-7084-3265-9085-8269-3286-77", "Azure"},
	{"oraclecloud", "Oracle Cloud"}, {"alibaba", "Alibaba Cloud"}, {"tencent", "Tencent Cloud"},
	{"openstack", "OpenStack"}, {"digitalocean", "DigitalOcean"}, {"hetzner", "Hetzner"}, {"scaleway", "Scaleway"},
	{"huawei cloud", "Huawei Cloud"}, {"exoscale", "Exoscale"}, {"ibm:cloud", "IBM Cloud"},
}

// cloudOf returns the cloud of a host by its firmware, or "" for no known cloud.
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

// behindTranslation returns a warning about a cloud host without a public address of its own:
// guests may then reach the host by an address forkd does not know. It returns "" for other hosts.
func behindTranslation(dmi string, addrs []netip.Addr) string {
	cloud := cloudOf(dmi)
	if cloud == "" || slices.ContainsFunc(addrs, netpolicy.IsPublic) {
		return ""
	}
	return fmt.Sprintf(
		"this host is in a cloud (%s) and has private addresses only: sandboxes may reach the host by a "+
			"public address; block it with --net-own-address ADDRESS", cloud)
}

// ownAddrs returns the addresses of the host's interfaces.
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
