package guestnet

import "testing"

func TestAddressesAreOnOneWire(t *testing.T) {
	if !Guest4.Contains(Gateway4) || Guest4.Addr() == Gateway4 {
		t.Errorf("%s does not reach %s", Guest4, Gateway4)
	}
	if !Guest4.Contains(Broadcast4) || Guest4.Contains(Broadcast4.Next()) {
		t.Errorf("%s is not the last address of %s", Broadcast4, Guest4)
	}
	if !Guest6.Contains(GatewayUniqueLocal) || !Block6.Contains(Guest6.Addr()) {
		t.Errorf("%s and %s are not in %s", Guest6, GatewayUniqueLocal, Block6)
	}
	if !GuestLinkLocal.Contains(Gateway6) || GuestLinkLocal.Addr() == Gateway6 {
		t.Errorf("%s does not reach %s", GuestLinkLocal, Gateway6)
	}
	if got := GatewayMAC().String(); got != "02:66:6f:72:6b:01" {
		t.Errorf("the gateway is %s", got)
	}
	if got := ParentMAC().String(); got != "02:66:6f:72:6b:02" {
		t.Errorf("a parent is %s", got)
	}
	if !Reserved(GatewayMAC()) || !Reserved(ParentMAC()) || Reserved([]byte{2, 0, 0, 0, 0, 1}) {
		t.Error("what is reserved is not told from the rest")
	}
}
