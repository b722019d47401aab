# story: a chmod -R 777 went through the folders of a slot, which others then read and write
# rows: slot-folders
# level: full
broken() {
	keep_modes $app/slots/home/slot01 $app/slots/state/slot01 $app/slots/run/slot01
	chmod -R go+rwx $app/slots/home/slot01 $app/slots/state/slot01 $app/slots/run/slot01
}
