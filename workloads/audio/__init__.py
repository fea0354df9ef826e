"""Speech as sound: recordings, who speaks when in them, and the streams of PCM that simulated users send.

soundfile, soxr, webrtcvad, G722 and av come with the extra `audio` and are imported only when a recording is read, so
that a workload without sound needs none of them.
"""
