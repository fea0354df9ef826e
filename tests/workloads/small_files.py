"""A few good rows in the layout of every source, all made up: name of the workload -> (file name, text)."""

import json

CHUNK = "0,0.5,1.2,Gamma,0.69,2.9\n600,0,0,,0,0\n1200,0.4,0.9,Weibull,1.1,2.5\n"
LENGTHS = json.dumps({"0": {"input_tokens": "{39: 0.5, 40: 0.5}", "output_tokens": "{7: 1.0}"}})
MULTIMODAL = {  # a client that sends words with one picture or three, and a sound
    "text_tokens": "{136: 0.25, 372: 0.75}",
    "image_tokens": "{1196: 1.0}",
    "audio_tokens": "{50: 1.0}",
    "video_tokens": "{0: 1.0}",
    "image_count": "{1: 0.5, 3: 0.5}",
    "audio_count": "{1: 1.0}",
    "video_count": "{0: 1.0}",
    "output_tokens": "{19: 0.5, 20: 0.5}",
}
QUESTION = {"question": "What is on the left?", "time_stamp": "00:00:31", "options": ["A. One", "B. Two"]}
V3 = {
    "conversations": [
        {"from": "gpt", "value": "x"},
        {"from": "human", "value": "Why?"},
        {"from": "gpt", "value": "So."},
    ]
}

FILES = {
    "burstgpt": (
        "b.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,300,20,320,Conversation log\n",
    ),
    "sessions": ("s.csv", "session_id,t,query,output\na,5,10,100\nb,6,11,110\n"),
    "azure": ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2031-03-07 09:10:11.1234500,300,20\n"),
    "mooncake": ("m.jsonl", '{"timestamp": 0, "input_length": 1500, "output_length": 80, "hash_ids": [0, 1, 2]}\n\n'),
    "sharegpt": ("v3.json", json.dumps([V3])),
    "streamingbench": ("q.json", json.dumps([{"questions": [QUESTION], "video_path": "v.mp4"}])),
    "offline": ("vcsum.txt", json.dumps({"av_num": 7, "context": [["One.", "Two."]], "discussion": "Both."}) + "\n"),
}
