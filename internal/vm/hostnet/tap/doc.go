// Package tap is the network engine behind a tap device. It copies frames between the guest and the
// tap, with their headers: the receiver does the checksum and segmentation work. It opens no files,
// and does not validate frames: the device has checked the guest's headers, the kernel checks them
// again, and policy is the operator's.
//
// A network may begin to speak before the guest does, so an engine is created when the network
// opens, and not at the guest's first frame.
package tap
