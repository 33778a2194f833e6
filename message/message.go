// Package message is a RocketMQ message: its properties, ids and names, and its stored byte form.
//
// The main types are Record (a view of stored bytes) and Message (what a producer hands in, ready to be encoded).
// store, broker, client and the inspector use it. It never touches a socket, a file or a clock.
//
// Formats: docs/formats/record.md.
package message

import "net/netip"

// LogOffset is a position in the commit log, in bytes from the very first byte ever written. Range 0 to 2^63-1.
type LogOffset int64

// QueueOffset numbers the messages of one queue from 0.
type QueueOffset int64

// Magic numbers of the second field of a record.
const (
	MagicV1    uint32 = 0xDAA320A7 // topic length in one byte, at most 127
	MagicV2    uint32 = 0xDAA320AB // topic length in two bytes
	MagicBlank uint32 = 0xCBD43194 // filler up to the end of a segment
)

// Positions of the fields that the commit log writes at the last moment.
const (
	PosQueueOffset = 20
	PosLogOffset   = 28
	PosSysFlag     = 36
	BlankSize      = 8 // size and magic; every segment keeps room for it
)

// Bits of SysFlag.
const (
	FlagCompressed      int32 = 0x1
	FlagMultiTags       int32 = 0x2
	TransactionMask     int32 = 0xC
	TransactionPrepared int32 = 0x4
	TransactionCommit   int32 = 0x8
	TransactionRollback int32 = 0xC
	FlagBornHostV6      int32 = 0x10
	FlagStoreHostV6     int32 = 0x20
	FlagNeedUnwrap      int32 = 0x40
	FlagInnerBatch      int32 = 0x80
	CodecMask           int32 = 0x700
	CodecLZ4            int32 = 0x100
	CodecZstd           int32 = 0x200
	CodecZlib           int32 = 0x300 // 0 with FlagCompressed means zlib too
)

// Limits of the format and RocketMQ's defaults.
const (
	MaxPropertiesLen = 32767
	MaxTopicLen      = 127 // 255 for retry and dead letter topics
	MaxTopicLenStore = 255
	MaxGroupLen      = 120
)

// Message is one message on its way into the log. Byte slices belong to the caller until the call that takes the
// message returns. Queue offset, log offset and store time are assigned by the commit log.
type Message struct {
	Topic          []byte
	QueueID        int32
	Flag           int32 // opaque, of the user
	SysFlag        int32 // the host bits are set by AppendRecord
	BornTime       int64 // ms since the epoch
	BornHost       netip.AddrPort
	StoreHost      netip.AddrPort
	ReconsumeTimes int32
	PreparedOffset LogOffset
	Body           []byte
	Properties     []byte // encoded: name 0x01 value 0x02 ...
}

// Record is a stored record, decoded in place: its byte slices are views of the buffer given to Parse.
type Record struct {
	Size           int32
	Magic          uint32
	BodyCRC        uint32
	QueueID        int32
	Flag           int32
	QueueOffset    QueueOffset
	LogOffset      LogOffset
	SysFlag        int32
	BornTime       int64
	BornHost       netip.AddrPort
	StoreTime      int64
	StoreHost      netip.AddrPort
	ReconsumeTimes int32
	PreparedOffset LogOffset
	Body           []byte
	Topic          []byte
	Properties     []byte
}
