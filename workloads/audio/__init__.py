"""Speech as sound: recordings, their speakers' times, and the PCM streams that simulated users send.

soundfile, soxr, webrtcvad, G722 and av come with the extra `audio` and are imported only when a recording is read, so
that a workload without sound needs none of them.
"""
